"""Providers as the store knows them, for people to see."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

import orjson

from palaver.errors import Failure
from palaver.late import dataclass
from palaver.store.reading import records
from palaver.store.redis import provider_keys
from palaver.store.redis.connection import Connection, Fields, Pipeline, now_ms
from palaver.store.redis.visits import ask_each, whole

_MOST_MODELS: Final = 100
"""Gates of models that are looked at, of one provider."""
_ABSENT_MS: Final = 10_000
"""A call that is later than this is not counted as waiting: most likely its run was cancelled."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A provider that is out, or one of its models."""

    model: str | None
    """None: all of them."""
    since: datetime
    failure: Failure
    """The last one."""
    next_probe: datetime
    """The next call begins then at the earliest, unless the one that is under way is answered."""
    waiting: int
    """Calls that wait for it."""


@dataclass(frozen=True, slots=True)
class CooldownState:
    """A provider that asked for fewer requests, for all of its models or for one."""

    model: str | None
    """None: all of them."""
    until: datetime
    waiting: int
    """Calls that wait for it."""


@dataclass(frozen=True, slots=True)
class ProviderUsage:
    """A provider as the store knows it."""

    name: str
    cooling: tuple[CooldownState, ...]
    cooldowns: int
    """The number of cool-downs that have begun since it last had none for ten minutes."""
    in_flight: int
    """Calls that hold a place; only those of providers with ``max_in_flight`` do."""
    waiting: int
    requests_last_minute: int
    """Requests of the last minute. Only those of providers with a limit are counted."""
    tokens_last_minute: int
    outages: tuple[Outage, ...]

    @property
    def cooling_until(self) -> datetime | None:
        """The end of the last of its cool-downs."""
        return max((cooldown.until for cooldown in self.cooling), default=None)

    def model_cools_until(self, model: str) -> datetime | None:
        """Return when a model of that name may be called again; None if it may be now."""
        return max((cooldown.until for cooldown in self.cooling if cooldown.model in (None, model)), default=None)


async def provider_states(redis: Connection, names: Sequence[str]) -> list[ProviderUsage]:
    """The providers of these names. Without those whose server is away, if the server that answers tells so."""
    now = await now_ms(redis)
    of_models = await limit_keys_of_models(redis, names, now)

    def put(pipeline: Pipeline, limit_key: str) -> None:
        of = provider_keys.of_gate(limit_key)
        pipeline.hgetall(of.gate)
        pipeline.zcount(of.calls, f"({now}", "+inf")
        pipeline.zcount(of.waiting, now - _ABSENT_MS, "+inf")
        pipeline.hget(of.outage, "error")
        if limit_key in of_models:
            pipeline.hget(of.cooldowns, "begun")

    limit_keys = [limit_key for name, models in of_models.items() for limit_key in (name, *models)]
    replies = dict(await ask_each(redis, limit_keys, put))
    gates = {limit_key: _GateRecord(limit_key, *reply[:4]) for limit_key, reply in replies.items()}
    there = [
        (name, [gates[limit_key] for limit_key in (name, *models)])
        for name, models in of_models.items()
        if all(limit_key in gates for limit_key in (name, *models))
    ]
    return [_state(of[0], of, int(replies[name][4] or 0), now) for name, of in whole(names, there)]


async def limit_keys_of_models(redis: Connection, providers: Sequence[str], now: int) -> dict[str, list[str]]:
    """Return the limit keys of models whose gates have to be asked, by provider: of those whose server answers."""
    found = await ask_each(
        redis,
        providers,
        lambda pipeline, name: pipeline.zrange(
            provider_keys.of_gate(name).models, f"({now}", "+inf", byscore=True, offset=0, num=_MOST_MODELS
        ),
    )
    return {name: [f"{name}/{model.decode()}" for model in models] for name, (models,) in found}


class _GateRecord(NamedTuple):
    """The record of a gate."""

    name: str
    fields: Fields
    in_flight: int
    waiting: int
    error: bytes | None
    """The last failure of its outage."""

    def number(self, field: bytes) -> float:
        """A field of it, 0 if it has none."""
        return float(self.fields.get(field, 0))


def _state(provider: _GateRecord, gates: Sequence[_GateRecord], cooldowns: int, now: int) -> ProviderUsage:
    return ProviderUsage(
        name=provider.name,
        cooling=tuple(cool_down for gate in gates if (cool_down := _cool_down(gate, now)) is not None),
        cooldowns=cooldowns,
        in_flight=provider.in_flight,
        waiting=sum(gate.waiting for gate in gates),
        requests_last_minute=_last_minute(provider.fields, b"requests", now),
        tokens_last_minute=_last_minute(provider.fields, b"tokens", now),
        outages=tuple(outage for gate in gates if (outage := _outage(gate, now)) is not None),
    )


def _cool_down(gate: _GateRecord, now: int) -> CooldownState | None:
    until = gate.number(b"until")
    if until <= now or b"out" in gate.fields:
        return None
    return CooldownState(gate.name.partition("/")[2] or None, records.instant(until), gate.waiting)


def _outage(gate: _GateRecord, now: int) -> Outage | None:
    if b"out" not in gate.fields or gate.error is None or gate.number(b"opens") <= now:
        return None
    return Outage(
        model=gate.name.partition("/")[2] or None,
        since=records.instant(gate.number(b"out")),
        failure=Failure.of_error(orjson.loads(gate.error)),
        next_probe=records.instant(max(now, gate.number(b"until"))),
        waiting=gate.waiting,
    )


def _last_minute(gate: Fields, rate: bytes, now: int) -> int:
    """The last 60 s, as if what the minute before used had been spread evenly over it."""
    minute, into = divmod(now, 60_000)
    age = minute - int(float(gate.get(b"minute", -2)))
    this, before = float(gate.get(rate, 0)), float(gate.get(rate + b"_before", 0))
    if age == 1:
        this, before = 0.0, this
    elif age != 0:
        return 0
    return max(0, round(this + before * (1 - into / 60_000)))
