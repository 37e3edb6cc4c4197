"""A store that is copied from one place to another, compared with what is there, and made like it.

It can be ended at any point and begun again: what is alike is left as it is. The source is only read.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import field
from typing import Any, Final

from palaver.errors import Refused
from palaver.late import dataclass
from palaver.store.redis.connection import portions

from .approval import approve
from .fleets import fleet_of, scripts_run, servers_of
from .parts import MOST_LEFT, StorePart, beginning_of, kind_in, part_of, shard_in
from .places import CopyPlace
from .values import KINDS, NOTHING, Command, Value, changes, glance_at

_AT_ONCE: Final = 100
"""Keys that are looked at together."""
_MOST_COMMANDS: Final = 1_000
_MOST_BYTES: Final = 4 << 20
"""Commands, and bytes of them, that are sent together."""
_TELL: Final = 5.0
"""Seconds between two words about how far it is."""
_NAMED: Final = 10
_APART: Final = 1.0
"""Seconds by which two clocks may differ without a word."""
_SOON: Final = 1.0
"""Seconds before its end in which a key is as good as gone, by the target's clock."""
_OTHERS: Final = "others"


@dataclass(slots=True)
class CopyReceipt:
    """The result of a copy."""

    ahead: bool
    keys: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Keys of the source, by kind."""
    written: int = 0
    """Keys of the target that were not like those of the source."""
    size: int = 0
    """The bytes of what was written."""
    removed: int = 0
    """Keys of the target that the source does not have."""
    left: Counter[str] = field(default_factory=Counter)
    """Keys of the source that are not copied, by the beginning of their names."""
    shards: int = 0
    """The least PALAVER_SHARDS that sees all of it."""
    clocks_differ: float = 0.0
    """Seconds by which the target's clock is ahead of the source's."""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    """Sentences about what makes the copy none; empty if it was compared, and is whole."""
    notes: list[str] = field(default_factory=list)

    @property
    def conversations(self) -> int:
        """The number of conversations."""
        return self.kinds["conv"]

    def look_at(self, key: bytes) -> None:
        """Count a key of the source."""
        self.keys += 1
        self.kinds[kind_in(key)] += 1
        self.shards = max(self.shards, 1 + (shard_in(key) or 0))

    def leave(self, key: bytes) -> None:
        """Count a key that is not copied."""
        name = beginning_of(key)
        self.left[name if name in self.left or len(self.left) < MOST_LEFT else _OTHERS] += 1


class Copying:
    """One copy. ``ahead``, while the source may be in use: without what moves, and without a comparison at the end.
    ``tell`` takes words about how far it is."""

    def __init__(self, source: CopyPlace, target: CopyPlace, *, ahead: bool, tell: Callable[[str], None]) -> None:
        self._source = source
        self._target = target
        self._receipt = CopyReceipt(ahead)
        self._tell = tell
        self._told = time.monotonic()
        self._writes: list[Command] = []
        self._weight = 0
        self._differing: list[bytes] = []
        self._target_ahead = 0.0

    async def run(self) -> CopyReceipt:
        """Copy, and return what came of it. Raises as `approve` and `CopyPlace.ask`."""
        receipt, began = self._receipt, time.monotonic()
        ran = [(await servers_of(place), await scripts_run(place)) for place in (self._source, self._target)]
        await approve(self._source, self._target, ahead=receipt.ahead)
        await self._compare_clocks()
        for part in (StorePart.RECORDS, StorePart.LISTS) if receipt.ahead else StorePart:
            await self._copy(part)
        if not receipt.ahead:
            for part in reversed(StorePart):
                await self._remove(part)
            self._judge()
            await self._look_again(ran)
        receipt.seconds = round(time.monotonic() - began, 3)
        return receipt

    async def _copy(self, part: StorePart) -> None:
        """Make the keys of one part of the target what those of the source are, and look whether they are."""
        receipt, looked = self._receipt, 0
        async for names in self._source.names():
            if part is StorePart.RECORDS:
                for name in names:
                    if part_of(name) is None:
                        receipt.leave(name)
            changed: list[bytes] = []
            async for source, target in self._both([name for name in names if part_of(name) is part]):
                receipt.look_at(source.key)
                if await self._make_alike(source, target):
                    changed.append(source.key)
                looked += 1
                self._progress(f"{part.name.lower()}: {looked:,} keys compared, {receipt.written:,} written so far")
            await self._flush()
            receipt.written += len(changed)
            if not receipt.ahead:
                # What was alike remains so: nothing writes.
                self._differing += [
                    source.key async for source, target in self._both(changed) if await _differ(source, target)
                ]

    async def _both(self, names: Sequence[bytes]) -> AsyncIterator[tuple[Value, Value]]:
        """Yield the values of these keys at both places, of those that the source has, and that do not expire before
        anybody can look whether they are there."""
        for some in portions([*dict.fromkeys(names)], _AT_ONCE):
            both = await asyncio.gather(glance_at(self._source.ask, some), glance_at(self._target.ask, some))
            soon = (time.time() + self._target_ahead + _SOON) * 1000
            for source, target in zip(*both, strict=True):
                if source.glance.kind == NOTHING or 0 <= source.glance.expires < soon:
                    continue
                if source.glance.kind not in KINDS:
                    kind = source.glance.kind.decode(errors="replace")
                    raise Refused(
                        "copy_refused", f"a key of the source, {_shown(source.key)}, is a {kind}, and none is"
                    )
                yield source, target

    async def _make_alike(self, source: Value, target: Value) -> bool:
        """Tell whether anything was to be done for that."""
        changed = False
        async for command in changes(source, target):
            changed = True
            self._writes.append(command)
            self._weight += sum(len(word) for word in command if isinstance(word, bytes | str))
            if len(self._writes) >= _MOST_COMMANDS or self._weight >= _MOST_BYTES:
                await self._flush()
        return changed

    async def _flush(self) -> None:
        writes, self._writes = self._writes, []
        self._receipt.size += self._weight
        self._weight = 0
        await self._target.ask(writes)

    async def _remove(self, part: StorePart) -> None:
        """Remove those keys of one part that the source does not have."""
        async for names in self._target.names():
            gone = await self._gone([name for name in names if part_of(name) is part])
            await self._target.ask([("UNLINK", name) for name in gone])
            there = await self._target.ask([("EXISTS", name) for name in gone])
            self._differing += [name for name, found in zip(gone, there, strict=True) if found]
            self._receipt.removed += len(gone)

    async def _gone(self, names: Sequence[bytes]) -> list[bytes]:
        """Return those of the target's keys that the source does not have."""
        there = await self._source.ask([("EXISTS", name) for name in names])
        return [name for name, found in zip(names, there, strict=True) if not found]

    def _judge(self) -> None:
        """Say that keys differ, if any do."""
        if self._differing:
            some = ", ".join(map(_shown, self._differing[:_NAMED]))
            self._receipt.wrong.append(
                f"{len(self._differing):,} keys are not alike, {some} among them: another process writes, begin again"
            )

    async def _look_again(self, ran: Sequence[tuple[frozenset[str], int | None]]) -> None:
        """See whether a process used one of them meanwhile, or another server took over."""
        for place, (servers, before) in zip((self._source, self._target), ran, strict=True):
            fleet, now = await fleet_of(place), await scripts_run(place)
            if await servers_of(place) != servers:
                # A page of names goes on nowhere else, and a replica may not have had all that was written.
                self._receipt.wrong.append(
                    f"another server took over at the {place.role}, or one was restarted: begin again"
                )
            elif fleet.there:
                self._receipt.wrong.append(f"the {place.role} is in use by {fleet.named}: stop them, and begin again")
            elif before is not None and now is not None and now != before:
                self._receipt.wrong.append(
                    f"another process used the {place.role} meanwhile: stop all, and begin again"
                )
            if not fleet.seen or now is None:
                self._receipt.notes.append(
                    f"the {place.role} does not tell who is connected or what was asked of it: see yourself that no "
                    "API and no worker was running"
                )

    async def _compare_clocks(self) -> None:
        offsets = [await _offset(place) for place in (self._source, self._target)]
        self._target_ahead = offsets[1]
        apart = self._receipt.clocks_differ = round(offsets[1] - offsets[0], 3)
        if abs(apart) > _APART:
            how = "earlier" if apart > 0 else "later"
            self._receipt.notes.append(
                f"the clock of the target differs by {apart:.1f} s: times are copied as they are, so what is due comes "
                f"that much {how}"
            )

    def _progress(self, words: str) -> None:
        if time.monotonic() - self._told >= _TELL:
            self._told = time.monotonic()
            self._tell(words)


async def _differ(source: Value, target: Value) -> bool:
    async for _ in changes(source, target):
        return True
    return False


async def _offset(place: CopyPlace) -> float:
    """Return how far the clock of a place, of a cluster the one that is furthest ahead, is ahead of this machine's."""
    before = time.time()
    told: Sequence[Any] = await place.of_each("TIME")
    now = (before + time.time()) / 2
    return float(max(seconds + micros / 1e6 for seconds, micros in told) - now)


def _shown(key: bytes) -> str:
    return key[:120].decode(errors="backslashreplace")
