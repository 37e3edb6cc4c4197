"""The gates of the providers, as one worker process knows them.

The store decides who may call. It is asked only where it could say no: for a provider with limits, and for a provider
or a model that cools down or is out, which every worker hears the moment it begins. A worker that is not subscribed to
that asks each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from palaver.config.providers import Limits, Provider
from palaver.delivery.publishing import Publish, deliver_now
from palaver.errors import ErrorClass, Failure, sign_of_outage
from palaver.schemas.models import Usage
from palaver.steps.leases import Lease
from palaver.steps.verdicts import GiveUp, RetryAfter, Verdict
from palaver.store import Store
from palaver.store.fleet.providers import Cooling
from palaver.store.scripting.contracts.providers import Admitted, Wait
from palaver.vocabulary.ids import step_at, tenant_of

from .limit_keys import LimitKeys, limit_keys_of
from .provider_permit import ProviderPermit

log = logging.getLogger("palaver.workers.models.provider_limiter")

COOL_DOWN: Final = 1.0
"""Seconds, when the provider does not say how long: the first back-off of most clients."""
LONGEST_COOL_DOWN: Final = 300.0
"""Seconds that one answer may stop everybody for: the cap of the usual policy. Who asks for more is asked again."""
_FAILURES: Final = 5
"""That make an outage. A step that fails so often by itself waits alone, if its request may be the cause."""
_MOST_LIMIT_KEYS: Final = 1000
"""That a worker remembers answers of: models are named by those who submit runs."""


_NONE: Final[Mapping[str, Limits]] = {}
_UNLIMITED: Final = Limits()


class ProviderLimiter:
    """Lets model calls through, or says when to come again."""

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Provider],
        publish: Publish,
        heartbeat: float,
        *,
        names: Iterable[str] = (),
        services: Mapping[str, Limits] = _NONE,
    ) -> None:
        """``names`` are those of all providers that it may hear of, if they are more than these. ``services`` are the
        limits of what tools call, by limit key."""
        self._store = store
        self._names = (*(names or providers), *services)
        self.guards_services = bool(services)
        self._limits = {name: provider.limits for name, provider in providers.items()} | dict(services)
        self._whole = {name for name, provider in providers.items() if provider.rate_limit_scope == "provider"}
        """Providers whose rate limits are about all models together."""
        self._publish = publish
        self._heartbeat = heartbeat
        self._subscribed = False
        self._cooling_until: dict[str, float] = {}
        """By the loop's clock: these gates cool down or are out, or did a moment ago."""
        self._failing_since: dict[str, float] = {}
        """For gates that are out: the time of the first of the failures in a row."""
        self._answered_at: dict[str, float] = {}
        """Time at which the newest answer began, by gate, the oldest first."""
        self._tellings: set[asyncio.Task[None]] = set()
        self._in_flight: defaultdict[str, set[str]] = defaultdict(set)

    def permit(self, lease: Lease, prompt_bytes: Callable[[], int], used: Callable[[], Usage]) -> ProviderPermit:
        """That of one attempt; ``prompt_bytes`` and ``used`` tell the size of its prompt and what its calls took."""
        return ProviderPermit(self, lease, prompt_bytes, used)

    def limits(self, provider: str) -> Limits:
        """The limits of a provider, as this worker's table has them."""
        return self._limits.get(provider, _UNLIMITED)

    def asks(self, limit_key: str) -> bool:
        """Tell whether the store could refuse a call."""
        return not self._subscribed or limit_key in self._cooling_until or bool(self.limits(limit_key))

    def cooling_until(self, limit_key: str) -> float:
        """Return the time at which the present cool-down will be forgotten, by the loop's clock; a new one makes it
        later."""
        return self._cooling_until.get(limit_key, 0.0)

    def _knows_cooldown(self, limit_key: str) -> bool:
        return self.cooling_until(limit_key) > asyncio.get_running_loop().time()

    def is_circuit_open(self, limit_keys: LimitKeys) -> bool:
        """Tell whether a model or its provider is out, as far as this worker has heard."""
        return any(map(self._knows_open_circuit, limit_keys))

    def _knows_open_circuit(self, limit_key: str) -> bool:
        return limit_key in self._failing_since and self._knows_cooldown(limit_key)

    async def peek(self, lease: Lease) -> Wait | None:
        """Return when to ask again, if the model is out or cools down: a step that waits for the model takes no place
        at its provider, nor stays in line for one. The step whose turn it is asks the provider first, and so do all if
        that is out, too: a step has to probe it."""
        provider, model = limit_keys_of(lease.agent)
        if not self.limits(provider) or self._knows_open_circuit(provider) or not self._knows_cooldown(model):
            return None
        weight = await self._weight(lease)
        answer = await self._store.providers.admit(
            model, _call(lease), self.limits(model), 0, weight=weight, looks=True
        )
        await self._wake(model, answer.woken)
        if not isinstance(answer, Wait):
            return None
        await self._give_back(provider, _call(lease), tokens=0, used=0)
        return answer

    async def admit(self, lease: Lease, limit_key: str, tokens: int) -> Admitted | Wait:
        """Take a place for an attempt that may use so many ``tokens``, or say when to ask again."""
        call, limits = _call(lease), self.limits(limit_key)
        answer = await self._store.providers.admit(limit_key, call, limits, tokens, weight=await self._weight(lease))
        await self._wake(limit_key, answer.woken)
        if isinstance(answer, Wait):
            return answer
        if self.cooling_until(limit_key) < asyncio.get_running_loop().time():
            self._cooling_until.pop(limit_key, None)
        if limits or answer.probes:
            self._in_flight[limit_key].add(call)
        return answer

    async def release(self, lease: Lease, admitted_with: int, used: int, calls: int) -> None:
        """Give the place back: so many ``calls`` were made, if any, which ``used`` so many tokens."""
        await self._give_back(lease.agent.provider, _call(lease), tokens=admitted_with, used=used, calls=calls)

    async def leave(self, lease: Lease, limit_key: str, *, called: bool) -> None:
        """Give the place at a service back; nothing is counted for a call that was not made."""
        await self._give_back(limit_key, _call(lease), tokens=0, used=0, calls=int(called))

    async def _give_back(self, limit_key: str, call: str, *, tokens: int, used: int, calls: int = 1) -> None:
        self._leave(limit_key, call)
        try:
            woken = await self._store.providers.release(
                limit_key, call, self.limits(limit_key), tokens=tokens, used=used, calls=calls
            )
            await self._wake(limit_key, woken)
        except Exception as error:
            # The answer that was paid for matters more than the place, which comes free by itself.
            log.warning("a place at %s is not given back: %s", limit_key, type(error).__name__)

    def answered(self, lease: Lease, limit_keys: Iterable[str], probes: set[str]) -> None:
        """The call was answered. Who thinks that one of the ``limit_keys`` is out is told, and ``probes`` end."""
        now = asyncio.get_running_loop().time()
        for limit_key in limit_keys:
            self._note_answer(limit_key, now)
            if limit_key in probes or limit_key in self._failing_since:
                probes.discard(limit_key)
                self._tell_answer(limit_key, _call(lease))

    def _note_answer(self, limit_key: str, now: float) -> None:
        """Too many: the model that was silent for longest is forgotten. Providers are as many as the settings name."""
        self._answered_at.pop(limit_key, None)
        if len(self._answered_at) >= _MOST_LIMIT_KEYS and (oldest := next(filter(_is_model, self._answered_at), None)):
            del self._answered_at[oldest]
        self._answered_at[limit_key] = now

    async def forgo(self, lease: Lease, probes: set[str]) -> None:
        """The ``probes`` showed nothing: others may be made."""
        while probes:
            await self._give_back(probes.pop(), _call(lease), tokens=0, used=0)

    async def met_outage(
        self, lease: Lease, failure: Failure, probes: set[str], *, patient: bool = True
    ) -> Wait | None:
        """Report what a failed call says of its provider and its model; when to ask again, if there is an outage. A
        step that is not ``patient`` does not wait alone: it has its attempts."""
        limit_keys, sign = limit_keys_of(lease.agent), sign_of_outage(failure)
        about = None if sign is None else limit_keys.model if sign.of_model else limit_keys.provider
        if failure.provider is not None and failure.provider.http_status is not None:
            self.answered(lease, {*limit_keys} - {about}, probes)
        await self.forgo(lease, probes - {about} if about else probes)
        if sign is None or about is None:
            return None
        alone = None
        if patient and sign.of_request and lease.attempt >= _FAILURES:
            # Since its first attempt, or a little longer: while it waits the time is counted apart, and an attempt in
            # between in both. An answer from before the first wait has to count.
            alone = lease.elapsed + (lease.out_for or 0.0)
        return await self.report_failure(lease, about, failure, probes, of_request=sign.of_request, alone=alone)

    async def report_failure(
        self,
        lease: Lease,
        about: str,
        failure: Failure,
        probes: set[str],
        *,
        of_request: bool,
        alone: float | None = None,
    ) -> Wait | None:
        """Report a failure as in an outage of the limit key ``about``; when to ask again, if there is one. If it may be
        ``of_request``, however often that fails, it counts once."""
        probes.discard(about)
        call = _call(lease)
        self._leave(about, call)
        at = self._answered_at.get(about)
        try:
            out = await self._store.providers.report_failure(
                about,
                call,
                failure,
                counts_as=call if of_request else f"{call} {lease.try_number}",
                answered=None if at is None else asyncio.get_running_loop().time() - at,
                alone=alone,
                weight=await self._weight(lease),
            )
            if out is not None:
                await self._wake(about, out.woken)
        except Exception as error:
            log.warning("a failure of %s is not reported: %s", about, type(error).__name__)
            return None
        return out

    async def apply(self, lease: Lease, verdict: Verdict) -> Verdict:
        """Apply what a failure means for all: a model whose provider asked for fewer requests gets none for a while, or
        all of its models, if their limits are one.

        A step that asks this provider again is given its turn after the cool-down right away.
        """
        if not isinstance(verdict, RetryAfter | GiveUp) or not lease.kind.asks_model:
            return verdict
        failure = verdict.failure
        if failure.error_class is not ErrorClass.RATE_LIMITED:
            return verdict
        limit_keys = limit_keys_of(lease.agent)
        limit_key = limit_keys.provider if limit_keys.provider in self._whole else limit_keys.model
        return await self.leave_alone(lease, limit_key, failure.retry_after, verdict)

    async def leave_alone(
        self, lease: Lease, limit_key: str, retry_after: float | None, verdict: RetryAfter | GiveUp
    ) -> RetryAfter | GiveUp:
        """No step calls for so many seconds. A step that asks again is given its turn after that."""
        seconds = min(retry_after or COOL_DOWN, LONGEST_COOL_DOWN)
        again = verdict if isinstance(verdict, RetryAfter) and not verdict.fallback else None
        self._cool_down(limit_key, seconds)
        try:
            call = _call(lease) if again else None
            weight = await self._weight(lease)
            turn = await self._store.providers.cool_down(limit_key, seconds, call, weight=weight)
        except Exception as error:
            log.warning("%s cools down and the others do not know: %s", limit_key, type(error).__name__)
            return verdict
        return verdict if again is None else replace(again, delay=max(again.delay, turn))

    async def _weight(self, lease: Lease) -> int:
        """Of the lease's tenant, among those that wait for a provider."""
        return await self._store.caps.weight(tenant_of(lease.run_id))

    async def listen(self) -> None:
        """Hear of cool-downs, those of other workers too."""
        try:
            async for news in self._store.providers.news(self._names):
                if news is None:
                    self._subscribed = True
                else:
                    self._hear(news)
        finally:
            self._subscribed = False

    def _hear(self, news: Cooling) -> None:
        now = asyncio.get_running_loop().time()
        for limit_key in [limit_key for limit_key, until in self._cooling_until.items() if until < now]:
            del self._cooling_until[limit_key]
        for limit_key in self._failing_since.keys() - self._cooling_until.keys():
            del self._failing_since[limit_key]
        if news.seconds > 0:
            self._cooling_until[news.limit_key] = now + news.seconds
        else:
            self._cooling_until.pop(news.limit_key, None)
        self._failing_since.pop(news.limit_key, None)
        if news.failing_for is None:
            return
        since = self._failing_since[news.limit_key] = now - news.failing_for
        if self._answered_at.get(news.limit_key, since) > since:
            # The others do not know it: only failures are told. One worker without a network is no outage.
            self._tell_answer(news.limit_key, "")

    async def renew_places(self) -> None:
        """Keep the places of the calls in flight, three times a lease."""
        while True:
            # Calls begin and end while Redis is asked.
            for provider, calls in tuple(self._in_flight.items()):
                if calls:
                    await self._store.providers.renew_places(provider, tuple(calls))
            await asyncio.sleep(self._heartbeat)

    def _leave(self, limit_key: str, call: str) -> None:
        """The call's place is renewed no more."""
        if limit_key in self._in_flight:
            self._in_flight[limit_key].discard(call)
            if not self._in_flight[limit_key]:
                del self._in_flight[limit_key]

    def _cool_down(self, limit_key: str, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        self._cooling_until[limit_key] = max(until, self.cooling_until(limit_key))

    def _tell_answer(self, limit_key: str, call: str) -> None:
        """In the background: it is not waited for. If it changes nothing, there will be news."""
        self._leave(limit_key, call)
        self._failing_since.pop(limit_key, None)
        task = asyncio.create_task(self._report_answer(limit_key, call, self._answered_at[limit_key]))
        self._tellings.add(task)
        task.add_done_callback(self._tellings.discard)

    async def _report_answer(self, limit_key: str, call: str, at: float) -> None:
        try:
            answered = asyncio.get_running_loop().time() - at
            await self._wake(limit_key, await self._store.providers.report_answer(limit_key, call, answered=answered))
        except Exception as error:
            log.warning("an answer of %s is not reported: %s", limit_key, type(error).__name__)

    async def _wake(self, provider: str, calls: Sequence[str]) -> None:
        """Have the steps of ``calls`` delivered now, all at once; places of those that wait no more go to the next.

        An error ends it and harms no step that is served: those that wait ask again by themselves, and a place that
        is not taken comes free."""
        try:
            while calls:
                promoted = await deliver_now(self._store, self._publish, [step_at(call) for call in calls])
                limits = self.limits(provider)
                idle = [call for call, moved in zip(calls, promoted, strict=True) if moved is None]
                calls = [
                    woken
                    for call in idle
                    for woken in await self._store.providers.release(provider, call, limits, tokens=0, used=0)
                ]
        except Exception as error:
            log.warning("some that wait for %s are not told that it has room: %s", provider, type(error).__name__)


def _is_model(limit_key: str) -> bool:
    return "/" in limit_key


def _call(lease: Lease) -> str:
    return f"{lease.conversation_id}/{lease.run_id}/{lease.step}"
