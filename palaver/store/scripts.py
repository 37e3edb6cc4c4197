"""The Lua scripts: loaded once, called by name, each one atomic on one hash slot.

The lifecycle table and the retention are written into the scripts from Python, so that there is one table
only. A change of either changes the script's SHA: old and new workers cannot disagree about what they run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from redis.exceptions import NoScriptError

from palaver.errors import NewerVersion, NotDurable
from palaver.lifecycle import TRANSITIONS
from palaver.limits import most
from palaver.settings import Settings
from palaver.store.connection import Connection, Value
from palaver.store.keys import promised

VERSION: Final = 1
"""Of what the scripts write. It is counted up with a change that older code would misread (ADR 0015)."""

_RUN: Final = ("_show", "_run")
_MOVES: Final = (*_RUN, "_limits", "_actions", "_rest", "_calls", "_ending", "_turn")
"""The words of the scripts that move a run."""
_PARTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "submit": (*_MOVES, "_input", "_stop", "_others", "_create", "_page", "_version", "submit"),
        "claim": (*_RUN, "_limits", "_page", "_version", "claim"),
        "settle": (*_MOVES, "_verdict", "_version", "settle"),
        "hand_back": (*_MOVES, "_version", "hand_back"),
        "postpone": (*_MOVES, "_version", "postpone"),
        "recall": (*_RUN, "_version", "recall"),
        "attend": (*_MOVES, "_blame", "_overdue", "attend"),
        "cancel": (*_MOVES, "_stop", "_version", "cancel"),
        "act": (*_MOVES, "_input", "_version", "act"),
        "delete_run": (*_MOVES, "_page", "_version", "delete_run"),
        "delete_conversation": ("_page", "delete_conversation"),
        "copy_log": ("_page", "copy_log"),
        "read": ("_page", "read"),
        "renew": ("renew",),
        "feed": ("_show", "feed"),
        "admit": ("_gate", "_queue", "_ramp", "admit"),
        "release": ("_gate", "release"),
        "cool": ("_gate", "_queue", "_ramp", "cool"),
        "hold": ("_gate", "hold"),
    }
)
"""The files that each script is made of."""
NAMES: Final = tuple(_PARTS)
"""Every script."""

_WAIT_MS: Final = 2000
"""How long a promise waits for disk or replicas: the API answers within three seconds."""
Call = tuple[str, Sequence[str], Sequence[Value]]
"""A script's name, its KEYS and its ARGV."""


class Scripts:
    """Runs the scripts of ``lua/`` on one connection pool."""

    def __init__(self, redis: Connection, settings: Settings) -> None:
        folder = files("palaver.store") / "lua"
        constants = _constants(settings)
        self._redis = redis
        self._wait = _waiting(settings.durability)
        self._sources = {
            name: constants + "".join((folder / f"{part}.lua").read_text() for part in parts)
            for name, parts in _PARTS.items()
        }
        self._shas = {
            name: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            for name, source in self._sources.items()
        }

    async def run(self, name: str, keys: Sequence[str], args: Sequence[Value]) -> Any:
        """The reply of one script.

        Raises:
            NewerVersion: newer code has worked on this conversation. Nothing was written.
        """
        try:
            reply = await self._redis.evalsha(self._shas[name], len(keys), *keys, *args)
        except NoScriptError:
            reply = await self._redis.eval(self._sources[name], len(keys), *keys, *args)
        return _heeded(reply)

    async def promise(self, name: str, keys: Sequence[str], args: Sequence[Value]) -> Any:
        """The reply of one script, once what it is based on is as safe as PALAVER_DURABILITY asks.

        Raises:
            NewerVersion: newer code has worked on this conversation. Nothing was written.
            NotDurable: that took too long; the script has run.
        """
        if self._wait is None:
            return await self.run(name, keys, args)
        command, enough = self._wait
        while True:
            # On one connection: after a failover in between, the wait would be for another server's writes.
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.evalsha(self._shas[name], len(keys), *keys, *args)
            # A script that finds its work done writes nothing, and the server waits for a connection's own writes.
            pipeline.set(promised(keys[0]), 1, ex=60)
            pipeline.execute_command(*command)
            reply, written, reached = await pipeline.execute(raise_on_error=False)
            if not isinstance(reply, NoScriptError):
                break
            await self._redis.script_load(self._sources[name])
        for answer in (reply, written, reached):
            if isinstance(answer, Exception):
                raise answer
        _heeded(reply)
        if (reached[0] if isinstance(reached, list) else reached) < enough:
            raise NotDurable(reply)
        return reply

    async def run_all(self, calls: Iterable[Call]) -> list[Any]:
        """The replies of several scripts, sent at once; each is atomic, all together are not.

        Raises the first error that a script answered, after all have run.
        """
        calls = list(calls)
        replies = await self._pipeline(calls)
        missed = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missed:
            for name in {calls[i][0] for i in missed}:
                await self._redis.script_load(self._sources[name])
            for i, reply in zip(missed, await self._pipeline([calls[i] for i in missed]), strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def _pipeline(self, calls: Sequence[Call]) -> list[Any]:
        if not calls:
            return []
        pipeline = self._redis.pipeline(transaction=False)
        for name, keys, args in calls:
            pipeline.evalsha(self._shas[name], len(keys), *keys, *args)
        return await pipeline.execute(raise_on_error=False)


def _heeded(reply: Any) -> Any:
    if reply == [b"newer"]:
        raise NewerVersion
    return reply


def _waiting(durability: str) -> tuple[tuple[Value, ...], int] | None:
    """The command that waits, and what it must answer at least; None if writing is enough."""
    kind, _, number = durability.partition("=")
    match kind:
        case "replicas":
            return ("WAIT", int(number), _WAIT_MS), int(number)
        case "fsync":
            return ("WAITAOF", 1, 0, _WAIT_MS), 1
        case _:
            return None


def _constants(settings: Settings) -> str:
    edges = ", ".join(
        f"{source} = {{ {', '.join(f'{target} = true' for target in sorted(targets))} }}"
        for source, targets in TRANSITIONS.items()
    )
    # A feed goes with its run at the latest.
    feed_retention = min(settings.feed_retention, settings.retention)
    return (
        f"local VERSION = {VERSION}\n"
        f"local EDGES = {{ {edges} }}\n"
        f"local RETENTION, FEED_RETENTION = {int(settings.retention)}, {int(feed_retention)}\n"
        f"local RUN_DEADLINE = {int(settings.run_deadline * 1000)}\n"
        f"local PAGE, PAGE_BYTES = {most('script_page')}, {most('script_page_bytes')}\n"
        f"local FEED_CAP, FEED_BYTES = {settings.feed_cap}, {most('feed_bytes')}\n"
        f"local MAX_ENTRIES, MAX_BYTES = {settings.max_entries}, {settings.max_conversation_bytes}\n"
        f"local MAX_QUEUED, STEER_BYTES = {settings.max_queued}, {most('steering')}\n"
        f"local MAX_LOSSES = {settings.max_losses}\n"
    )
