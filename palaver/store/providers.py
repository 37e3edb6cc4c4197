"""The gate in front of each provider, shared by all workers: cool-downs, calls in flight, rates.

A call that may not begin gets a time at which to ask again; it takes no place in flight, and nothing polls for it.
Waiting calls keep their order until they begin, however often the provider cools down (``lua/_queue.lua``). After a
cool-down the calls begin one by one and then ever faster (``lua/_ramp.lua`` has the numbers). Rates are counted by
GCRA, in ``lua/admit.lua``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, assert_never

from palaver.providers import Limits
from palaver.settings import Settings
from palaver.store import keys, records
from palaver.store.connection import Connection, Fields, Listener, now_ms
from palaver.store.contracts import providers as contract
from palaver.store.scripts import Scripts

_ABSENT_MS: Final = 10_000
"""A call that is later than this is not counted as waiting: most likely its run was cancelled."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call may begin."""

    woken: tuple[str, ...] = ()
    """Calls that have a place now, too: promote their steps."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The call may not begin yet."""

    code: str
    """Why: ``cooldown``, ``max_in_flight``, ``requests_per_minute`` or ``tokens_per_minute``."""
    seconds: float
    """Ask again then: this time is the caller's own."""
    woken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cooling:
    """A provider cools down: for ``seconds`` from now on, calls need permission."""

    provider: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ProviderUsage:
    """A provider as the store knows it."""

    name: str
    cooling_until: datetime | None
    cooldowns: int
    """How many have begun, since it had none for ten minutes."""
    in_flight: int
    """Calls that hold a place; only those of providers with ``max_in_flight`` do."""
    waiting: int
    requests_last_minute: int
    """Of providers with a limit; those of others are not counted."""
    tokens_last_minute: int


class Providers:
    """Decides which calls of a provider may begin, and when. Times are by Redis's clock."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self._lease_ms = int(settings.lease_seconds * 1000)

    async def admit(self, provider: str, call: str, limits: Limits, tokens: int) -> Admitted | Wait:
        """Let ``call``, which may take so many ``tokens``, begin now, or say how long it waits.

        A caller that waits must ask with the same ``call`` again. One that is admitted and has a limit must
        ``release`` its place, and ``renew_places`` until then.
        """
        reply = await self._scripts.run(
            contract.Admit(
                provider=keys.of_provider(provider),
                call=call,
                lasts_ms=self._lease_ms,
                limits=_in_script(limits),
                tokens=tokens,
            )
        )
        match reply:
            case contract.Admitted():
                return Admitted(reply.woken)
            case contract.Wait():
                return Wait(reply.why, reply.ms / 1000, reply.woken)
            case _:
                assert_never(reply)

    async def release(
        self, provider: str, call: str, limits: Limits, *, tokens: int, used: int, calls: int = 1
    ) -> tuple[str, ...]:
        """``call``, admitted with ``tokens``, has ended and ``used`` so many, in so many ``calls``: those after the
        first are counted now. Returns the calls to promote."""
        released = await self._scripts.run(
            contract.Release(
                provider=keys.of_provider(provider),
                call=call,
                limits=_in_script(limits),
                more=contract.Uncounted(max(0, calls - 1), used - tokens),
            )
        )
        return released.woken

    async def renew_places(self, provider: str, calls: Sequence[str]) -> None:
        """Keep the places of ``calls`` in flight for another lease; a dead worker's come free after one."""
        await self._scripts.run(
            contract.RenewPlaces(provider=keys.of_provider(provider), ms=self._lease_ms, calls=tuple(calls))
        )

    async def cool_down(self, provider: str, seconds: float, call: str | None = None) -> float:
        """Nobody calls ``provider`` for at least so many ``seconds``; all workers hear it.

        Answers the seconds until ``call``, which is to be made again, has its turn; without one, until the
        cool-down ends.
        """
        cooled = await self._scripts.run(
            contract.CoolDown(
                provider=keys.of_provider(provider), provider_name=provider, ms=int(seconds * 1000), call=call
            )
        )
        return cooled.turn_ms / 1000

    async def state(self, names: Iterable[str]) -> list[ProviderUsage]:
        """The providers of these names."""
        now = await now_ms(self._redis)
        listed = list(names)
        pipeline = self._redis.pipeline(transaction=False)
        for name in listed:
            of = keys.of_provider(name)
            pipeline.hgetall(of.gate)
            pipeline.zcount(of.calls, f"({now}", "+inf")
            pipeline.zcount(of.waiting, now - _ABSENT_MS, "+inf")
        replies = await pipeline.execute() if listed else []
        return [_state(name, now, *replies[3 * i : 3 * i + 3]) for i, name in enumerate(listed)]

    async def news(self, names: Iterable[str]) -> AsyncGenerator[Cooling | None, None]:
        """Providers that cool down, as they do, for ever; None once nothing more can be missed.

        What was to be heard before that, or while the connection was broken, is looked up. Raises what Redis
        raises; start again then.
        """
        pubsub = self._redis.pubsub()
        try:
            await pubsub.subscribe(keys.PROVIDERS)
            listener = Listener(pubsub)
            while True:
                message = await listener.hear()
                if message is None:
                    continue
                if message["type"] == "subscribe":
                    for cooling in await self._cooling(names):
                        yield cooling
                    yield None
                elif message["type"] == "message":
                    name, _, left = message["data"].decode().partition(" ")
                    yield Cooling(name, int(left) / 1000)
        finally:
            await pubsub.aclose()

    async def _cooling(self, names: Iterable[str]) -> list[Cooling]:
        now, listed = await now_ms(self._redis), list(names)
        pipeline = self._redis.pipeline(transaction=False)
        for name in listed:
            pipeline.hget(keys.of_provider(name).gate, "opens")
        opens = await pipeline.execute() if listed else []
        left = {name: (float(at) - now) / 1000 for name, at in zip(listed, opens, strict=True) if at}
        return [Cooling(name, seconds) for name, seconds in left.items() if seconds > 0]


def _in_script(limits: Limits) -> contract.Rates:
    return contract.Rates(limits.max_in_flight, limits.requests_per_minute, limits.tokens_per_minute)


def _state(name: str, now: int, gate: Fields, in_flight: int, waiting: int) -> ProviderUsage:
    until = float(gate.get(b"until", 0))
    return ProviderUsage(
        name=name,
        cooling_until=records.moment(until) if until > now else None,
        cooldowns=int(float(gate.get(b"cooldowns", 0))),
        in_flight=in_flight,
        waiting=waiting,
        requests_last_minute=_last_minute(gate, b"requests", now),
        tokens_last_minute=_last_minute(gate, b"tokens", now),
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
