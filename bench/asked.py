"""What the model server was asked, read from the end of its ledger file as it grows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import orjson


class BenchError(RuntimeError):
    """The machine, or what is measured, did not do what the measurement takes for granted."""


class Call:
    """One request; ``ended`` is None while it is open. Times are UTC epoch seconds."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.run: str = start["run"] or ""
        self.digest: str = start["digest"]
        self.said: str = start["last_user"]
        """The beginning of the user's last words."""
        self.at: float = start["at"]
        self.ended_at: float | None = None
        self.closed_by_client_at: float | None = None
        self.outcome = "open"

    def end(self, line: dict[str, Any]) -> None:
        """Take in the end of the request."""
        self.ended_at, self.outcome = line["ended_at"], line["outcome"]
        self.closed_by_client_at = line["closed_by_client_at"]


class Asked:
    """The requests since the last ``forget``, oldest first."""

    def __init__(self, ledger: Path) -> None:
        self._path = ledger
        self._file: IO[bytes] | None = None
        self._torn = b""
        self._by_number: dict[int, Call] = {}

    @property
    def calls(self) -> list[Call]:
        """All of them, as far as the file tells by now."""
        self._read()
        return list(self._by_number.values())

    def forget(self) -> None:
        """Leave out what has been asked so far."""
        self._read()
        self._by_number.clear()

    async def until(
        self, done: Callable[[list[Call]], bool], *, within: float, what: str, every: float = 0.02
    ) -> list[Call]:
        """Wait until ``done`` says so of the calls; it is asked ``every`` so many seconds.

        Raises BenchError after ``within`` seconds.
        """
        give_up_at = time.monotonic() + within
        while not done(calls := self.calls):
            if time.monotonic() > give_up_at:
                raise BenchError(
                    f"{what}: not within {within:g} s; {len(calls)} requests, {_ended(calls)} of them ended"
                )
            await asyncio.sleep(every)
        return calls

    async def ended(self, count: int, *, within: float, what: str, every: float = 0.02) -> list[Call]:
        """Wait until so many have ended, as ``until``."""
        return await self.until(lambda calls: _ended(calls) >= count, within=within, what=what, every=every)

    def _read(self) -> None:
        if self._file is None:
            self._file = self._path.open("rb")
        lines = (self._torn + self._file.read()).split(b"\n")
        self._torn = lines.pop()
        for line in lines:
            written = orjson.loads(line)
            if written["event"] == "start":
                self._by_number[written["n"]] = Call(written)
            elif written["event"] == "end" and written["n"] in self._by_number:
                self._by_number[written["n"]].end(written)


def _ended(calls: list[Call]) -> int:
    return sum(call.ended_at is not None for call in calls)
