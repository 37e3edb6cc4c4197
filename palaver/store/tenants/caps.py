"""The caps of tenants: in one hash of each shard, where the scripts read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final

from palaver.config.settings import Settings
from palaver.schemas.tenants import Caps, CapsChange
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Value
from palaver.store.scripting.scripts import Command, Scripts
from palaver.vocabulary.ids import all_shards

_NAMES: Final = tuple(Caps.model_fields)
_NANO: Final = 1_000_000_000
"""Nano-dollars in a dollar: the scripts count money in them."""
_WEIGHTS_LAST: Final = 1.0
"""Seconds."""
_MONEY: Final = frozenset({"usd_per_day", "usd_per_month"})


class TenantCaps:
    """The caps of each tenant."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self._shards = all_shards(settings.shards)
        self._weights: dict[str, int] = {}
        self._read_at = 0.0

    async def get(self, tag: str) -> Caps:
        """The caps of the tenant with this tag; empty: of the default tenant."""
        values = await self._redis.hmget(keys.caps(self._shards[0]), _fields(tag))
        found = {name: value for name, value in zip(_NAMES, values, strict=True) if value is not None}
        return Caps.model_validate({name: _read(name, value) for name, value in found.items()})

    async def weight(self, tag: str) -> int:
        """The weight of a tenant, as it was within the last second."""
        now = monotonic()
        if self._read_at + _WEIGHTS_LAST < now:
            self._weights, self._read_at = {}, now
        if tag not in self._weights:
            weight = await self._redis.hget(keys.caps(self._shards[0]), f"{keys.owner(tag)}weight")
            self._weights[tag] = int(weight or 1)
        return self._weights[tag]

    async def change(self, tag: str, change: CapsChange) -> Caps:
        """Change caps of a tenant; from now on they hold in each shard, for what waits, too. What they all are then.

        Raises:
            NotDurable: they may be lost yet.
        """
        changes = {name: getattr(change, name) for name in _NAMES if name in change.model_fields_set}
        for shard in self._shards if changes else ():
            await self._scripts.write_durably(_commands(keys.caps(shard), tag, changes))
        return await self.get(tag)


def _commands(caps: str, tag: str, changes: Mapping[str, float | None]) -> Sequence[Command]:
    owner = keys.owner(tag)
    values: list[Value] = []
    for name, value in changes.items():
        if value is not None:
            values += (f"{owner}{name}", round(value * _NANO) if name in _MONEY else int(value))
    gone = [f"{owner}{name}" for name, value in changes.items() if value is None]
    return [*([("HSET", caps, *values)] if values else []), *([("HDEL", caps, *gone)] if gone else [])]


def _fields(tag: str) -> Sequence[str]:
    return [f"{keys.owner(tag)}{name}" for name in _NAMES]


def _read(name: str, value: bytes) -> float:
    return int(value) / _NANO if name in _MONEY else int(value)
