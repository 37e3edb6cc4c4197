"""The set of features of an installation: what its processes have, as the store keeps it (ADR 0138)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, Final

import orjson
from redis.exceptions import ConnectionError, TimeoutError

from palaver.errors import ConfigurationError
from palaver.feature import CHOICE, entries, features, seeing, switched_on
from palaver.late import dataclass
from palaver.store.redis import fleet_keys, keys
from palaver.store.redis.connection import Connection, Value
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.lifecycle import RunStatus

log: Final = logging.getLogger("palaver.features")

EVERY: Final = 60.0
"""Seconds between two looks at the set."""
_AT_ONCE: Final = 500
"""Runs that are looked at in one turn."""


@dataclass(frozen=True, slots=True)
class KeptFeature:
    """A feature that processes of this installation have, or had."""

    version: str
    """The version of the distribution that it is of."""
    sees_runs: bool
    """True if it sees what becomes of runs: a run that it is to see is touched by no process that lacks it."""


class FeatureSet:
    """The features of an installation. Each process adds its own, and learns which of the others it lacks."""

    def __init__(self, redis: Connection, shards: int) -> None:
        self._redis = redis
        self._shards = shards
        self._said: frozenset[str] = frozenset()

    async def kept(self) -> Mapping[str, KeptFeature]:
        """Return the features that the store knows of, by name."""
        found = await self._redis.hgetall(fleet_keys.FEATURES)
        return {name.decode(): KeptFeature(**orjson.loads(kept)) for name, kept in sorted(found.items())}

    async def lacking(self) -> Mapping[str, KeptFeature]:
        """Keep what this process has, and return what the installation has besides. Logs that once for each."""
        sees = seeing()
        own = {name: KeptFeature(_version(entries()[name]), name in sees) for name in sorted(switched_on())}
        if own:
            pairs = (word for name in own for word in (name, orjson.dumps(own[name])))
            await self._send(("HSET", fleet_keys.FEATURES, *pairs))
        lacks = {name: kept for name, kept in (await self.kept()).items() if name not in own}
        for name in lacks.keys() - self._said:
            log.warning("%s", sentence(name, lacks[name]))
        self._said = frozenset(lacks)
        return lacks

    async def require(self) -> None:
        """Look, before runs are taken on. Of a store that is away nothing is known, and nothing refused.

        Raises:
            ConfigurationError: a run of this process would never be seen by a feature of the installation.
        """
        try:
            lacks = await self.lacking()
        except (ConnectionError, TimeoutError):
            return
        for name, kept in lacks.items():
            if kept.sees_runs:
                raise ConfigurationError(sentence(name, kept))

    async def require_all(self) -> None:
        """Look, before all that there is of something is read or erased; keeps nothing.

        Raises:
            ConfigurationError: a feature of the installation that sees runs is not here: it may have things elsewhere.
        """
        here = switched_on()
        for name, kept in (await self.kept()).items():
            if kept.sees_runs and name not in here:
                raise ConfigurationError(sentence(name, kept))

    async def watch(self) -> None:
        """Look each minute, for ever."""
        while True:
            await self.lacking()
            await asyncio.sleep(EVERY)

    async def drop(self, name: str) -> int:
        """Take a feature that no process has any more out of the set, and return how many unfinished runs it was to see
        what becomes of. These go on without it.

        Raises ConfigurationError: this process has it.
        """
        if name in switched_on():
            raise ConfigurationError(f"{name} is here: take it out of all processes first, as with {CHOICE}=-{name}")
        await self._send(("HDEL", fleet_keys.FEATURES, name))
        return sum(
            [
                await self._let_go(name, keys.runs(shard, status, of))
                for shard in all_shards(self._shards)
                for status in RunStatus
                if not status.terminal
                for of in keys.ALL_TENANTS
            ]
        )

    async def _let_go(self, name: str, runs: str) -> int:
        """From the end: those that leave the list meanwhile move none over a place that was looked at."""
        (end,), done = await self._send(("ZCARD", runs)), 0
        while end > 0:
            found = await self._redis.zrange(runs, max(0, end - _AT_ONCE), end - 1)
            of = [keys.run(run_id.decode()) for run_id in found]
            named = await self._send(*(("HGET", run, "features") for run in of))
            seen = {run: each.decode().split() for run, each in zip(of, named, strict=True) if each}
            others = {run: [each for each in seen[run] if each != name] for run in seen if name in seen[run]}
            await self._send(*(("HSET", run, "features", " ".join(others[run])) for run in others))
            done += len(others)
            end -= _AT_ONCE
        return done

    async def _send(self, *commands: Sequence[Value]) -> Sequence[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute() if commands else ()


def sentence(name: str, kept: KeptFeature) -> str:
    """Say what a process does without a feature that its installation has, and what to do."""
    here = features().get(name)
    if here is not None and here.switch:
        return (
            f"this installation has the feature {name}, and this process leaves runs that it is to see to others: set "
            f"{here.switch}, or, once no process has it, `palaver features drop {name}`"
        )
    without = "leaves runs that it is to see to others" if kept.sees_runs else "does nothing of what it is for"
    return (
        f"this installation has the feature {name} ({kept.version}), and this process lacks it and {without}: install "
        f"it, take it out of {CHOICE}, or, once no process has it, `palaver features drop {name}`"
    )


@cache
def _version(entry: EntryPoint) -> str:
    """To read it takes half a millisecond, and what is installed stays as long as a process lives."""
    return entry.dist.version if entry.dist else ""
