"""The steps that are lost with a worker, in all shards: a script sees its own, and most neighbours are in others.

Where there is one shard, the script that ends a lease judges by itself who may have ended the worker (ADR 0016).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import orjson

from palaver.late import dataclass
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, now_ms, portions
from palaver.store.redis.visits import ask_each
from palaver.store.scripting.contracts.steps import Judge
from palaver.store.scripting.scripts import Scripts
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.ids import shard_of

_NEAR: Final = 1000
"""Entries of a shard's due index that are looked at, the earliest ones, and steps that are judged together."""
_SOON: Final = 60_000
"""Milliseconds from now within which leases that are lost together run out, and trials begin: what waits for longer is
no part of it, and may be a million runs."""
_AT_ONCE: Final = 500
"""Steps that are read in one go: a worker's other steps go on in between."""
_LASTS: Final = 60.0
"""Seconds for which a judgement is kept for a step whose lease has not run out yet: it may be renewed after all."""
_FACTS: Final = ("since", "losses", "row", "age", "blamed")


@dataclass(frozen=True, slots=True)
class _Listed:
    """A step in the due index."""

    item: DueItem
    at: float
    step: Mapping[str, Any]

    def is_leased_to(self, worker: str, unrenewed_before: int | None) -> bool:
        if self.step.get("state") != "leased" or self.step.get("worker") != worker:
            return False
        return unrenewed_before is None or self.at < unrenewed_before


@dataclass(frozen=True, slots=True)
class Judgements:
    """The judgements of steps whose leases a sweep ends."""

    by_item: Mapping[DueItem, bytes]
    acquitted: Sequence[DueItem] = ()
    """Steps that are on trial and were not lost: a worker ended without them."""


class Losses:
    """The judge over all shards, of this process."""

    def __init__(
        self,
        redis: Connection,
        scripts: Scripts,
        shards: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._scripts = scripts
        self._shards = shards
        self._clock = clock
        self._judged: dict[tuple[str, DueItem], tuple[bytes, float]] = {}

    async def judge(
        self, things: Sequence[DueItem], worker: str = "", unrenewed_before: int | None = None
    ) -> Judgements:
        """Judge all that is lost with the workers that have leased these steps, of which ``worker`` is known to be
        dead; of steps that are judged, once."""
        if len(self._shards) == 1:
            return Judgements({})
        now = self._clock()
        self._judged = {about: kept for about, kept in self._judged.items() if kept[1] > now}
        leased = await self._leased(things, worker)
        unknown = [item for item, holder in leased.items() if (holder, item) not in self._judged]
        acquitted = await self._look({leased[item] for item in unknown}, unrenewed_before) if unknown else []
        found = {item: self._judged.pop((holder, item), None) for item, holder in leased.items()}
        return Judgements({item: kept[0] for item, kept in found.items() if kept}, acquitted)

    async def _leased(self, things: Sequence[DueItem], worker: str) -> dict[DueItem, str]:
        """Who has leased those that are steps, and leased."""
        steps = await self._read(thing for thing in things if thing.ready is None and thing.is_step)
        holders = {item: step["worker"] for item, step in steps if step.get("state") == "leased"}
        return {item: holder for item, holder in holders.items() if worker in ("", holder)}

    async def _look(self, workers: Iterable[str], unrenewed_before: int | None) -> list[DueItem]:
        """Judge what is lost with these workers, in all shards. Return what is on trial elsewhere."""
        until = max(await now_ms(self._redis) + _SOON, unrenewed_before or 0)
        found = await ask_each(
            self._redis,
            self._shards,
            lambda pipeline, shard: pipeline.zrange(
                keys.due(shard), "-inf", until, byscore=True, offset=0, num=_NEAR, withscores=True
            ),
        )
        scores = {DueItem.of(member.decode()): at for _, (pairs,) in found for member, at in pairs if b"/" in member}
        steps = await self._read(item for item in scores if item.is_step)
        entries = [_Listed(item, scores[item], step) for item, step in steps]
        lost: set[DueItem] = set()
        kinds: set[bool] = set()
        for worker in workers:
            together = [entry for entry in entries if entry.is_leased_to(worker, unrenewed_before)]
            lost |= {entry.item for entry in together}
            kinds |= {"call" in entry.step for entry in together}
            for some in portions(together, _NEAR):
                await self._judge(worker, some, unrenewed_before)
        tried = [entry for entry in entries if entry.step.get("on_trial") and ("call" in entry.step) in kinds]
        return [entry.item for entry in tried if entry.item not in lost]

    async def _judge(self, worker: str, together: Sequence[_Listed], unrenewed_before: int | None) -> None:
        facts = [
            {
                "member": f"{entry.item.run_id}/{entry.item.what}",
                "expiry": entry.at,
                "step": {name: entry.step[name] for name in _FACTS if name in entry.step},
            }
            for entry in together
        ]
        reply = await self._scripts.run(
            Judge(
                due=keys.due(shard_of(together[0].item.run_id)),
                losses=orjson.dumps(facts),
                unrenewed_before=unrenewed_before,
            )
        )
        until = self._clock() + _LASTS
        for entry, judged in zip(together, orjson.loads(reply.steps), strict=True):
            self._judged[worker, entry.item] = orjson.dumps(judged), until

    async def _read(self, items: Iterable[DueItem]) -> list[tuple[DueItem, Mapping[str, Any]]]:
        """Those of these steps that can be read: of others their runs will say it."""
        found: list[tuple[DueItem, Mapping[str, Any]]] = []
        for some in portions([*items], _AT_ONCE):
            pipeline = self._redis.pipeline(transaction=False)
            for item in some:
                pipeline.hget(keys.steps(item.run_id), item.what)
            for item, text in zip(some, await pipeline.execute(raise_on_error=False), strict=True):
                with suppress(orjson.JSONDecodeError):
                    if isinstance(text, bytes):
                        found.append((item, orjson.loads(text)))
        return found
