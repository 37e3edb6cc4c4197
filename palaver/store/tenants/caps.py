"""The caps of tenants, in one hash of each shard, where the scripts read them; and what holds calls of models to those
in money: each reserves what it may cost before it begins (ADR 0094)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import ceil
from time import monotonic
from typing import Final, assert_never

from palaver.errors import StaleLease
from palaver.schemas.tenants import Caps, CapsChange
from palaver.steps.leases import Lease
from palaver.store.reading.records import NANODOLLARS
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Value, portions
from palaver.store.redis.rounds import Rounds
from palaver.store.redis.visits import is_away
from palaver.store.scripting.contracts.caps import FindAllowed, Reserve, Reserved
from palaver.store.scripting.contracts.providers import Wait
from palaver.store.scripting.contracts.replies import Stale
from palaver.store.scripting.scripts import Command, Scripts
from palaver.vocabulary.ids import step_at

_NAMES: Final = tuple(Caps.model_fields)
_WEIGHTS_LAST: Final = 1.0
"""Seconds."""
_MONEY: Final = frozenset({"usd_per_day", "usd_per_month"})
_TOGETHER: Final = 16
"""Shards that are told of a change at once."""
_AT_ONCE: Final = 50
"""Tenants that one look is about, and steps of each."""
_MOST: Final = 10**14 - 1
"""Nano-dollars that one call may reserve: a script's JSON has all digits of such a number."""


class TenantCaps:
    """The caps of each tenant."""

    def __init__(self, redis: Connection, scripts: Scripts, rounds: Rounds) -> None:
        self._redis = redis
        self._scripts = scripts
        self._rounds = rounds
        self._shards = rounds.shards
        self._first = keys.caps(self._shards[0])
        self._weights: dict[str, int] = {}
        self._read_at = 0.0

    async def get(self, tag: str) -> Caps:
        """The caps of the tenant with this tag; empty: of the default tenant."""
        values = await self._redis.hmget(self._any, _fields(tag))
        found = {name: value for name, value in zip(_NAMES, values, strict=True) if value is not None}
        return Caps.model_validate({name: _read(name, value) for name, value in found.items()})

    async def weight(self, tag: str) -> int:
        """The weight of a tenant, as it was within the last second."""
        now = monotonic()
        if self._read_at + _WEIGHTS_LAST < now:
            self._weights, self._read_at = {}, now
        if tag not in self._weights:
            weight = await self._redis.hget(self._any, f"{keys.owner(tag)}weight")
            self._weights[tag] = int(weight or 1)
        return self._weights[tag]

    async def of_all(self) -> Mapping[str, Caps]:
        """The caps of each tenant that has some, by its tag."""
        found: dict[str, dict[str, float]] = {}
        for field, value in (await self._redis.hgetall(self._any)).items():
            owner, _, name = field.decode().rpartition(":")
            if name not in _NAMES:
                continue
            found.setdefault(owner.removeprefix("@"), {})[name] = _read(name, value)
        return {tag: Caps.model_validate(caps) for tag, caps in found.items()}

    async def change(self, tag: str, change: CapsChange) -> Caps:
        """Change caps of a tenant; from now on they hold in each shard, for what waits, too. What they all are then.

        Raises:
            NotDurable: they may be lost yet.
        """
        changes = {name: getattr(change, name) for name in _NAMES if name in change.model_fields_set}
        for some in portions(self._shards, _TOGETHER) if changes else ():
            await asyncio.gather(
                *(self._scripts.write_durably(_commands(keys.caps(shard), tag, changes)) for shard in some)
            )
        return await self.get(tag)

    @property
    def _any(self) -> keys.Key:
        """The hash of a shard that is there: all have the same."""
        return next((key for key in map(keys.caps, self._shards) if not is_away(self._redis, key)), self._first)

    async def reserve(
        self, lease: Lease, call: int, *, spent: float | None, least: float, most: float, tokens: int
    ) -> Wait | None:
        """Reserve what a call of a model may cost, in US dollars; or answer until when the tenant's caps allow none.

        It is the attempt's ``call`` of that number, from 1; those before it ``spent`` so much, if anybody knows. It
        costs at ``least`` what it is sent, and at ``most`` that and the longest answer. What is reserved ends with the
        lease. It may take so many ``tokens``, about; the true number replaces them once its step is settled.

        Raises:
            StaleLease: the lease is not the newest any more.
        """
        reserve = Reserve(
            run=keys.of_run(lease.run_id, lease.conversation_id),
            step=lease.step,
            fence=lease.fence,
            call=call,
            spent=None if spent is None else _nano(spent),
            least=_nano(least),
            most=_nano(most),
            tokens=tokens,
        )
        match await self._scripts.run(reserve):
            case Reserved():
                return None
            case Wait() as wait:
                return wait
            case Stale():
                raise StaleLease
            case other:
                assert_never(other)

    async def allowed(self, every: float = 0.0) -> Sequence[tuple[str, str, str]]:
        """Steps that wait for a cap of their tenant and may begin by now, each by the ids of its conversation and its
        run and its name. Of many tenants some are looked at, and the next ones the next time. None, if another sweeper
        has looked less than ``every`` seconds ago."""
        replies = await self._scripts.run_for_each(
            self._rounds.turn("allowed", 1),
            lambda shard: FindAllowed(
                held=keys.held(shard), meters=keys.meters(shard), every=every, tenants=_AT_ONCE, of_a_tenant=_AT_ONCE
            ),
        )
        return [step_at(call) for _, reply in replies for call in reply.calls]


def _nano(dollars: float) -> int:
    return min(ceil(dollars * NANODOLLARS), _MOST)


def _commands(caps: str, tag: str, changes: Mapping[str, float | None]) -> Sequence[Command]:
    owner = keys.owner(tag)
    values: list[Value] = []
    for name, value in changes.items():
        if value is not None:
            values += (f"{owner}{name}", round(value * NANODOLLARS) if name in _MONEY else int(value))
    gone = [f"{owner}{name}" for name, value in changes.items() if value is None]
    return [*([("HSET", caps, *values)] if values else []), *([("HDEL", caps, *gone)] if gone else [])]


def _fields(tag: str) -> Sequence[str]:
    return [f"{keys.owner(tag)}{name}" for name in _NAMES]


def _read(name: str, value: bytes) -> float:
    return int(value) / NANODOLLARS if name in _MONEY else int(value)
