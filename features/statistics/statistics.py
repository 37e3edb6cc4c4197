"""Statistics of runs, steps and models of late: lines of the journal, folded into tallies of each window (ADR 0042).

Scripts write a line of the journal with what it tells of. Here some of the oldest lines are read, added to the tallies
that they belong to, and put back by a script that takes the lines out in the same go, if they still are the oldest: so
any number may fold, and may die at any time, and each line counts once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from palaver.config.settings import Settings
from palaver.errors import UNREADABLE
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Pipeline, now_ms
from palaver.store.redis.reach import reaches
from palaver.store.redis.visits import AWAY, ask_each, whole
from palaver.store.scripting.contracts.replies import Gone
from palaver.store.scripting.scripts import Scripts
from palaver.store.sides import Ground

from . import statistics_keys
from .contract import FoldedTally, FoldJournal
from .tallies import JournalLine, NewerTally, SpanTally
from .windows import LASTS, WINDOWS, Window

_log: Final = logging.getLogger("palaver.statistics")
_AT_ONCE: Final = 200
"""Lines that are folded in one go. If each has a tenant and a span of its own, a request has 1,200 tallies."""
_SLICES: Final = 100
"""Times that one call folds a shard, at most."""
_EVERY: Final = 5.0
"""Seconds between two looks of a worker."""
_OLD: Final = 4000
"""ms: a journal whose first line is younger was folded by another process just now."""

_FINEST: Final = WINDOWS["hour"]

_Place = tuple[keys.Key, Window, int]
"""The key of an owner, and a span of a window."""


class Statistics:
    """The journal of each shard, and the tallies."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._scripts = ground.scripts
        self._rounds = ground.rounds
        self._shards = ground.rounds.shards

    async def read(self, window: Window, tag: str | None = None) -> tuple[int, Mapping[int, SpanTally]]:
        """Return the number of the present span, and the tallies of the window's spans in which anything happened, by
        number: of the tenant with this tag, if it is within reach, or of all that is. Raises what Redis raises."""
        owners = keys.reached_owners() if tag is None else (keys.owner(tag),) if reaches(tag) else ()
        await self.fold()

        def put(pipeline: Pipeline, shard: str) -> None:
            for owner in owners:
                pipeline.hmget(statistics_keys.statistics(shard, owner), window.places)

        present = window.number(await now_ms(self._redis))
        there = whole(self._shards, await ask_each(self._redis, self._shards, put))
        found: dict[int, SpanTally] = {}
        for texts in (texts for _, reply in there for texts in reply):
            for number, tally in _readable(filter(None, texts)):
                if present - window.spans < number <= present:
                    found.setdefault(number, SpanTally()).merge(tally)
        return present, dict(sorted(found.items()))

    async def keep(self) -> None:
        """Fold what other processes do not fold, without end. A store that does not answer is looked at later."""
        while True:
            with contextlib.suppress(*AWAY, OSError):
                await self.fold(await now_ms(self._redis) - _OLD, self._rounds.turn("journals", 1 / _EVERY))
            await asyncio.sleep(_EVERY)

    async def fold(self, until: float = math.inf, shards: Sequence[str] | None = None) -> None:
        """Fold the journals that begin until then (ms), as far as they go now: of the shards that answer, or of these
        among them."""
        oldest = await ask_each(
            self._redis,
            self._shards if shards is None else shards,
            lambda pipeline, shard: pipeline.execute_command(
                "XRANGE", statistics_keys.journal(shard), "-", "+", "COUNT", 1
            ),
        )
        for shard, (entries,) in oldest:
            if entries and int(entries[0][0].partition(b"-")[0]) <= until:
                with contextlib.suppress(*AWAY):
                    await self._fold(shard)

    async def _fold(self, shard: str) -> None:
        for _ in range(_SLICES):
            if not await fold_some(self._redis, self._scripts, shard):
                break


def loops(settings: Settings, store: Store, worker: str) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what each worker does beside its steps."""
    return [store.part(Statistics).keep]


async def fold_some(redis: Connection, scripts: Scripts, shard: str) -> bool:
    """Fold the oldest lines of a shard's journal. Tell whether there may be more."""
    journal = statistics_keys.journal(shard)
    entries = await redis.xrange(journal, "-", "+", _AT_ONCE)
    if not entries:
        return False
    tallies = _added_up(shard, (fields[b"line"] for _, fields in entries))
    try:
        await _merge_stored(redis, tallies)
    except NewerTally as error:
        _log.warning("the journal of statistics is left to newer processes: %s", error)
        return False
    ms, _, number = entries[-1][0].decode().partition("-")
    fold = FoldJournal(
        journal=journal,
        first=entries[0][0].decode(),
        next=f"{ms}-{int(number) + 1}",
        lasts=LASTS,
        tallies=tuple(
            FoldedTally(key, window.place(number), tally.to_json(number))
            for (key, window, number), tally in tallies.items()
        ),
    )
    return isinstance(await scripts.run(fold), Gone) or len(entries) == _AT_ONCE


async def _merge_stored(redis: Connection, tallies: dict[_Place, SpanTally]) -> None:
    """Add what is stored of the same spans. What is older than all that a window has is let go. Raises
    NewerTally."""
    places = list(tallies)
    pipeline = redis.pipeline(transaction=False)
    for key, window, number in places:
        pipeline.hget(key, window.place(number))
    for place, text in zip(places, await pipeline.execute(), strict=True):
        try:
            number, stored = SpanTally.of_json(text) if text else (-1, SpanTally())
        except NewerTally as other:
            if other.number == place[2]:
                raise
            number = other.number
        if number == place[2]:
            stored.merge(tallies[place])
            tallies[place] = stored
        elif number > place[2]:
            del tallies[place]


def _readable(texts: Iterable[bytes]) -> Iterator[tuple[int, SpanTally]]:
    """The stored tallies, without those of a newer version: its processes show them."""
    for text in texts:
        with contextlib.suppress(NewerTally):
            yield SpanTally.of_json(text)


def _added_up(shard: str, texts: Iterable[bytes]) -> dict[_Place, SpanTally]:
    """What lines say, by where it belongs: their owner's, and what all owners but the default one have together. A line
    that cannot be read is left out: one that stayed at the head would hold up all behind it."""
    spans: dict[tuple[str, int], SpanTally] = {}
    for text in texts:
        try:
            line = JournalLine.of(text)
            spans.setdefault((line.owner, _FINEST.number(line.at)), SpanTally()).add(line.words)
        except UNREADABLE as error:
            _log.error("a line of the journal of statistics cannot be read and is left out: %s", type(error).__name__)
    found: dict[_Place, SpanTally] = {}
    for (of, number), tally in spans.items():
        # Spans of the other windows are made of whole ones of the finest.
        at = number * _FINEST.seconds * 1000
        for owner in (of, keys.OTHER_TENANTS) if of else (keys.DEFAULT_TENANT,):
            for window in WINDOWS.values():
                place = (statistics_keys.statistics(shard, owner), window, window.number(at))
                found.setdefault(place, SpanTally()).merge(tally)
    return found
