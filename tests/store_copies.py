"""Stores to copy, the command that copies them, and a comparison of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import redis

from palaver.config.clusters import cluster_of, is_cluster
from palaver.config.settings import Settings
from palaver.schemas.conversation import NewConversation
from palaver.schemas.models import AgentSpec, Submission
from palaver.store import Store
from palaver.store.redis.connection import portions
from tests.pages import ROOT

_READ: Final = {b"hash": ("HGETALL",), b"zset": ("ZRANGE",), b"stream": ("XRANGE",)}
_ALL: Final = {b"zset": (0, -1, "WITHSCORES"), b"stream": ("-", "+")}
_GONE: Final = -2
"""The expiry of a key that has expired since its kind was read."""


class Copied(NamedTuple):
    """The end of the command."""

    status: int
    receipt: dict[str, Any]
    said: str


def command(source: str, target: str) -> tuple[list[str], dict[str, str]]:
    """The words of the command, and its environment, which has the addresses."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    words = [sys.executable, "-m", "palaver.cli", "store", "copy", "--json"]
    return words, {**clean, "PALAVER_COPY_FROM": source, "PALAVER_COPY_TO": target}


def copy(source: str, target: str, *more: str) -> Copied:
    """Run the command to its end."""
    words, environment = command(source, target)
    done = subprocess.run(
        [*words, *more], env=environment, capture_output=True, text=True, timeout=570, check=False, cwd=ROOT
    )
    return Copied(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)


def connected(url: str) -> Any:
    """A connection to a server or a cluster that is not Palaver's."""
    if is_cluster(url):
        place = cluster_of(url).places[0]
        return redis.RedisCluster(host=place.host, port=place.port, socket_timeout=10)
    return redis.Redis.from_url(url, socket_timeout=10)


def everything(url: str) -> dict[bytes, Any]:
    """All that a store has, read by another client in other commands than the copy's."""
    with closing(connected(url)) as client:
        names = {name for name in client.scan_iter(count=1000) if _is_stores(name)}
        return dict(_read(client, sorted(names)))


def _is_stores(name: bytes) -> bool:
    ours = name.startswith((b"{p", b"palaver:"))
    living = (b"palaver:worker:", b"palaver:workers", b"{palaver:workers}:")
    return ours and not name.startswith(living) and not name.endswith(b"}:promised")


def _read(client: Any, names: list[bytes]) -> Iterator[tuple[bytes, Any]]:
    for some in portions(names, 500):
        kinds = _answers(client, [("TYPE", name) for name in some])
        there = [(name, kind) for name, kind in zip(some, kinds, strict=True) if kind != b"none"]
        ends = _answers(client, [("PEXPIRETIME", name) for name, _ in there])
        values = _answers(client, [(*_READ.get(kind, ("GET",)), name, *_ALL.get(kind, ())) for name, kind in there])
        for (name, kind), end, value in zip(there, ends, values, strict=True):
            if end == _GONE:
                continue
            if kind == b"stream":
                told = client.xinfo_stream(name)
                value = [told[each] for each in ("last-generated-id", "entries-added", "max-deleted-entry-id")], value
            yield name, (kind, end, value)


def _answers(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What a server or a cluster answers to commands that are sent together."""
    with client.pipeline(transaction=False) as together:
        for command in commands:
            together.execute_command(*command)
        return list(together.execute())


async def fill(settings: Settings, conversations: int, runs: int = 0) -> None:
    """Begin conversations, each with a run that has ended, and submit more runs that nobody does."""
    async with Store.connect(settings) as store:
        await store.rewinds.look()
        for numbers in portions(range(conversations), 50):
            await asyncio.gather(*(_ended(store, number) for number in numbers))
        for number in range(runs):
            await store.runs.submit(Submission(agent=AgentSpec(model="fake/echo"), input=f"number {number}"))


async def _ended(store: Store, number: int) -> None:
    spec = AgentSpec(model="fake/echo")
    conversation, _ = await store.conversations.begin(NewConversation(agent=spec, title=f"number {number}"))
    submission = Submission(input="hello " * 20, conversation_id=conversation.id)
    submitted = await store.runs.submit(submission)
    await store.runs.cancel(submitted.run_id)
