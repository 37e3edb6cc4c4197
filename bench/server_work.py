"""What a Redis server has done, by its own account: commands, bytes, CPU, and what each script was."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

from redis.asyncio import Redis

from bench.asked import BenchError
from features.stack.ports import HOST
from palaver.processes.tasks import end

_LONGEST_LINE: Final = 1 << 28
_CALLS: Final = (b"EVALSHA", b"EVAL")
_LOG_LENGTH: Final = 1_000_000
"""Entries of the slow log: more than a measurement has."""
_UNKNOWN: Final = "(another)"


@dataclass(frozen=True, slots=True)
class ServerWork:
    """Everything that is counted, at a moment or between two."""

    commands: int
    """Those that scripts call, too."""
    received: int
    """Bytes, as those that were sent."""
    sent: int
    cpu: float
    """Seconds, user and system, as those in scripts."""
    in_scripts: float

    @classmethod
    async def of(cls, redis: Redis) -> Self:
        """What the server says now."""
        said = await redis.info("everything")
        in_scripts = sum(said.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("evalsha", "eval"))
        return cls(
            said["total_commands_processed"],
            said["total_net_input_bytes"],
            said["total_net_output_bytes"],
            said["used_cpu_user"] + said["used_cpu_sys"],
            in_scripts / 1e6,
        )

    def __sub__(self, before: ServerWork) -> ServerWork:
        return ServerWork(
            self.commands - before.commands,
            self.received - before.received,
            self.sent - before.sent,
            self.cpu - before.cpu,
            self.in_scripts - before.in_scripts,
        )


class Heard:
    """The commands of some time, one by one. ``names`` has each script's name by its SHA."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._script = ""
        self.of_clients = Counter[str]()
        """By name."""
        self.calls = Counter[str]()
        """Of each script."""
        self.inside = Counter[str]()
        """Commands that each script called."""

    def take(self, line: bytes) -> None:
        """A line of MONITOR. The commands of a script follow on its call: nothing comes between them."""
        about, _, rest = line.partition(b'] "')
        name, _, arguments = rest.partition(b'"')
        if about.endswith(b" lua"):
            self.inside[self._script] += 1
            return
        self.of_clients[name.upper().decode()] += 1
        if name.upper() in _CALLS:
            self._script = self._names.get(arguments[2:42].decode(), _UNKNOWN)
            self.calls[self._script] += 1


@asynccontextmanager
async def heard(port: int, names: Mapping[str, str]) -> AsyncIterator[Heard]:
    """Hear every command. That makes the server slower: count in such a time, and measure in another."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=_LONGEST_LINE)
    writer.write(b"MONITOR\r\n")
    if await reader.readline() != b"+OK\r\n":
        raise BenchError("the server does not let one listen")
    found = Heard(names)

    async def read() -> None:
        while line := await reader.readline():
            found.take(line)

    task = asyncio.create_task(read())
    try:
        yield found
    finally:
        await end(task)
        writer.close()


@asynccontextmanager
async def timed(redis: Redis, names: Mapping[str, str]) -> AsyncIterator[dict[str, float]]:
    """Time each call of a script; in the end the answer has the seconds of each script.

    The slow log with everything in it. A call's time in there is the one that ``ServerWork.in_scripts`` adds up: taken
    before the entry is written, so that only what follows finds colder caches.
    """
    await redis.config_set("slowlog-max-len", _LOG_LENGTH)
    await redis.slowlog_reset()
    await redis.config_set("slowlog-log-slower-than", 0)
    found: dict[str, float] = {}
    try:
        yield found
    finally:
        await redis.config_set("slowlog-log-slower-than", -1)
    for entry in await redis.slowlog_get(_LOG_LENGTH):
        words: list[bytes] = entry["command"].split(b" ", 2)
        if words[0].upper() in _CALLS:
            name = names.get(words[1].decode(), _UNKNOWN)
            found[name] = found.get(name, 0.0) + entry["duration"] / 1e6
    await redis.slowlog_reset()
