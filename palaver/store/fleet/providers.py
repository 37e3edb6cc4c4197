"""The gate in front of each provider, shared by all workers: cool-downs, outages, calls in flight, rates.

A call that may not begin gets a time at which to ask again; it takes no place in flight, and nothing polls for it.
Waiting calls keep their order until they begin, however often the provider cools down (``lua/_queue.lua``). After a
cool-down the calls begin one by one and then ever faster (``lua/_ramp.lua`` has the numbers). Rates are counted by
GCRA, in ``lua/admit.lua``. In an outage one call at a time probes whether it is over (``lua/_breaker.lua``).

A gate has the name of its provider. One of its models that is out alone has a gate too, ``provider/model``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import assert_never

import orjson

from palaver.config.providers import Limits
from palaver.config.settings import Settings
from palaver.errors import Failure
from palaver.late import dataclass
from palaver.store.fleet.provider_states import ProviderUsage, limit_keys_of_models, provider_states
from palaver.store.redis import provider_keys
from palaver.store.redis.connection import Connection, Listener, now_ms, portions
from palaver.store.redis.visits import ask_each
from palaver.store.scripting.contracts.providers import (
    Admit,
    Admitted,
    CoolDown,
    Counted,
    FailsAlone,
    IsOut,
    Rates,
    Release,
    RenewPlaces,
    ReportAnswer,
    ReportFailure,
    Uncounted,
    Wait,
)
from palaver.store.scripting.scripts import Scripts


@dataclass(frozen=True, slots=True)
class Cooling:
    """A gate has to be asked for ``seconds`` from now on: it cools down, or is out."""

    limit_key: str
    """The name of the provider, or of one of its models there."""
    seconds: float
    failing_for: float | None = None
    """If it is out: seconds since the first of the failures in a row."""


class Providers:
    """Decides which calls of a provider may begin, and when. Times are by Redis's clock."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self._lease = settings.lease_seconds

    async def admit(
        self, provider: str, call: str, limits: Limits, tokens: int, *, weight: int = 1, looks: bool = False
    ) -> Admitted | Wait:
        """Let ``call``, which may take so many ``tokens``, begin now, or say how long it waits. If it only ``looks``
        whether its turn has come, it takes nothing, and asks again to begin. Where calls wait, tenants take turns, and
        one has as many as its ``weight`` says.

        A caller that waits must ask with the same ``call`` again. One that is admitted and has a limit must
        ``release`` its place, and ``renew_places`` until then.
        """
        return await self._scripts.run(
            Admit(
                provider=provider_keys.of_gate(provider),
                call=call,
                lasts=self._lease,
                limits=_in_script(limits),
                tokens=tokens,
                weight=weight,
                looks=looks,
            )
        )

    async def release(
        self, provider: str, call: str, limits: Limits, *, tokens: int, used: int, calls: int = 1
    ) -> tuple[str, ...]:
        """``call``, admitted with ``tokens``, has ended and ``used`` so many, in so many ``calls``: one is counted
        already, so none takes it off again. Returns the calls to promote."""
        released = await self._scripts.run(
            Release(
                provider=provider_keys.of_gate(provider),
                call=call,
                limits=_in_script(limits),
                more=Uncounted(calls - 1, used - tokens),
            )
        )
        return released.woken

    async def renew_places(self, provider: str, calls: Sequence[str]) -> None:
        """Keep the places of ``calls`` in flight for another lease; a dead worker's come free after one."""
        await self._scripts.run_all(
            RenewPlaces(provider=provider_keys.of_gate(provider), lasts=self._lease, calls=tuple(some))
            for some in portions(calls)
        )

    async def cool_down(self, provider: str, seconds: float, call: str | None = None, *, weight: int = 1) -> float:
        """``provider`` is not called for at least so many ``seconds``; all workers hear it.

        Answers the seconds until ``call``, which is to be made again, has its turn; without one, until the
        cool-down ends.
        """
        cooled = await self._scripts.run(
            CoolDown(
                provider=provider_keys.of_gate(provider), gate_name=provider, lasts=seconds, call=call, weight=weight
            )
        )
        return cooled.turn

    async def report_failure(
        self,
        limit_key: str,
        call: str,
        failure: Failure,
        *,
        counts_as: str,
        answered: float | None,
        alone: float | None = None,
        weight: int = 1,
    ) -> Wait | None:
        """``call`` failed as in an outage: when it is to ask again, if it is one. Failures that ``counts_as`` the same
        are one; ``answered`` is the seconds since the caller had its last answer. ``alone`` is set for a step that
        failed often enough by itself: the seconds since its first attempt. It waits as in an outage, and no other step
        does, unless another call was answered in that time."""
        reply = await self._scripts.run(
            ReportFailure(
                provider=provider_keys.of_gate(limit_key),
                gate_name=limit_key,
                call=call,
                counts_as=counts_as,
                weight=weight,
                answered=answered,
                alone=alone,
                error=orjson.dumps(failure.to_error(step=None, attempt=None)),
            )
        )
        match reply:
            case Counted():
                return None
            case IsOut():
                return Wait("outage", reply.seconds, failure, reply.woken)
            case FailsAlone():
                return Wait("outage", reply.seconds, failure)
            case _:
                assert_never(reply)

    async def report_answer(self, limit_key: str, call: str, *, answered: float = 0.0) -> tuple[str, ...]:
        """``call`` was answered, so many seconds ago: no outage lasts from before. Returns the calls to promote."""
        reply = await self._scripts.run(
            ReportAnswer(provider=provider_keys.of_gate(limit_key), gate_name=limit_key, call=call, answered=answered)
        )
        return reply.woken

    async def state(self, names: Iterable[str]) -> list[ProviderUsage]:
        """The providers of these names."""
        return await provider_states(self._redis, list(names))

    async def news(self, names: Iterable[str]) -> AsyncGenerator[Cooling | None, None]:
        """Gates that have to be asked, as they have, for ever; None once nothing more can be missed.

        What was to be heard before that, or while the connection was broken, is looked up. Raises what Redis
        raises; start again then.
        """
        pubsub = self._redis.pubsub()
        try:
            await pubsub.subscribe(provider_keys.PROVIDERS)
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
                    # Older code does not tell the third.
                    limit_key, left, failing = (*message["data"].decode().rsplit(" ", 2), "")[:3]
                    yield Cooling(limit_key, int(left) / 1000, int(failing) / 1000 if failing else None)
        finally:
            await pubsub.aclose()

    async def _cooling(self, names: Iterable[str]) -> list[Cooling]:
        now, listed = await now_ms(self._redis), list(names)
        of_models = await limit_keys_of_models(self._redis, listed, now)
        found = await ask_each(
            self._redis,
            [limit_key for name, models in of_models.items() for limit_key in (name, *models)],
            lambda pipeline, limit_key: pipeline.hmget(provider_keys.of_gate(limit_key).gate, ("opens", "out")),
        )
        cooling = []
        for limit_key, ((opens, out),) in found:
            if opens and float(opens) > now:
                cooling.append(
                    Cooling(limit_key, (float(opens) - now) / 1000, (now - float(out)) / 1000 if out else None)
                )
        return cooling


def _in_script(limits: Limits) -> Rates:
    return Rates(limits.max_in_flight, limits.requests_per_minute, limits.tokens_per_minute)
