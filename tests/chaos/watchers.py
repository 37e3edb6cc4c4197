"""Watchers with a ledger of their own: they follow runs through the API and write down each event that they saw."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future, wait
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.chaos.looped import Looped
from tests.checkers.evidence import read_lines

AGAIN = 0.1
"""Seconds until a watcher whose connection broke comes back."""


class Watchers(Looped):
    """One for each run that is followed, all on the event loop of a thread; `breaking` is the chance, at each event,
    that the watcher itself drops its connection. It goes on behind the last event that it has, as a browser does.

    The ledger has a JSON line for each event: run, connection (from 1), id, type, data.
    """

    def __init__(self, url: str, ledger: Path, chance: random.Random, breaking: float = 0.0) -> None:
        self._url = url
        self._ledger = ledger
        self._chance = chance
        self._breaking = breaking
        self._following: dict[str, Future[None]] = {}
        self.connections = 0

    def follow(self, run_id: str) -> None:
        """Follow a run from its first event to its end; once."""
        if run_id not in self._following:
            self._following[run_id] = asyncio.run_coroutine_threadsafe(self._follow(run_id), self._loop)

    def seen(self, within: float = 5.0) -> list[dict[str, Any]]:
        """The ledger, once each followed run has shown its end, or so many seconds have gone by."""
        wait(self._following.values(), within)
        return read_lines(self._ledger)

    @contextlib.asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=self._url, timeout=30, limits=limits, trust_env=False) as self._http:
            yield

    async def _follow(self, run_id: str) -> None:
        last, connection = 0, 0
        while True:
            connection += 1
            self.connections += 1
            # Whatever breaks it: the API was killed, or has no Redis for the moment.
            with contextlib.suppress(httpx.HTTPError):
                async with aclosing(self._events(run_id, last)) as events:
                    async for number, kind, data in events:
                        self._write({"run": run_id, "connection": connection, "id": number, "type": kind, "data": data})
                        last = number or last
                        if kind == "run.finished":
                            return
                        if self._chance.random() < self._breaking:
                            break
            await asyncio.sleep(AGAIN)

    async def _events(self, run_id: str, last: int) -> AsyncGenerator[tuple[int | None, str, dict[str, Any]]]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
        async with self._http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as answer:
            answer.raise_for_status()
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if line and name:
                    fields[name] = value
                elif "data" in fields:
                    number = int(fields["id"]) if "id" in fields else None
                    yield number, fields["event"], orjson.loads(fields["data"])
                    fields = {}

    def _write(self, line: dict[str, object]) -> None:
        ledger = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(ledger, json.dumps(line).encode() + b"\n")
        os.close(ledger)
