"""The limits of the providers, as one worker process knows them.

The store decides who may call. It is asked only where it could say no: for a provider with limits, and for one that
cools down, which every worker hears the moment it begins. A worker that is not subscribed to that asks each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from palaver.errors import ErrorClass
from palaver.follow_up import Publish, follow_up
from palaver.leases import Lease
from palaver.models import Usage
from palaver.providers import Limits, Provider
from palaver.store import Store
from palaver.store.providers import Wait
from palaver.verdicts import GiveUp, Postpone, RetryAfter, Verdict

log = logging.getLogger("palaver.workers.provider_limiter")

_COOL_DOWN: Final = 1.0
"""Seconds, when the provider does not say how long: the first back-off of most clients."""
_LONGEST: Final = 300.0
"""Seconds that one answer may stop everybody for: the cap of the usual policy. Who asks for more is asked again."""
_BYTES_A_TOKEN: Final = 4
"""Of a prompt: the providers' own rule of thumb for English text. The true count replaces it after the call."""


class _NoRoom(Exception):
    """Leaves the block of a permit; it gets no further than that."""


class ProviderPermit:
    """An attempt's permit to call its provider: a context around all its model calls, with ``begin_call`` before each.

    If a call may not begin, the block ends there, and ``postponed`` is the verdict. A second call is rare, and one that
    had to wait for a place might wait for ever for the attempt's own: it takes none, and those who come later wait for
    it as well.
    """

    def __init__(
        self, limiter: ProviderLimiter, lease: Lease, prompt_bytes: Callable[[], int], used: Callable[[], Usage]
    ) -> None:
        self.postponed: Postpone | None = None
        self._limiter = limiter
        self._lease = lease
        self._prompt_bytes = prompt_bytes
        self._used = used
        self._admitted_with: int | None = None
        """Tokens; None if no place is taken."""
        self._cooling_until: float | None = None
        """As it was when the newest call began."""

    async def __aenter__(self) -> Self:
        """Ask for a place, where one is needed."""
        limiter, agent = self._limiter, self._lease.agent
        if limiter.asks(agent.provider):
            tokens = self._prompt_bytes() // _BYTES_A_TOKEN + (agent.max_output_tokens or 0)
            wait = await limiter.admit(self._lease, tokens)
            if wait is not None:
                self.postponed = Postpone(wait.seconds, wait.code)
            elif limiter.limits(agent.provider):
                self._admitted_with = tokens
        return self

    def begin_call(self) -> None:
        """A call begins here; the block ends if there is no room, or a cool-down began since the call before."""
        until, before = self._limiter.cooling_until(self._lease.agent.provider), self._cooling_until
        if before is not None and until > before:
            self.postponed = Postpone(until - asyncio.get_running_loop().time(), "cooldown")
        if self.postponed is not None:
            raise _NoRoom
        self._cooling_until = until

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Give the place back, with what the calls took."""
        if self._admitted_with is not None:
            usage = self._used()
            taken = usage.input_tokens + usage.output_tokens or (self._admitted_with if error is None else 0)
            await self._limiter.release(self._lease, self._admitted_with, taken, usage.model_calls)
        return isinstance(error, _NoRoom)


class ProviderLimiter:
    """Lets model calls through, or says when to come again."""

    def __init__(self, store: Store, providers: Mapping[str, Provider], publish: Publish, heartbeat: float) -> None:
        self._store = store
        self._names = tuple(providers)
        self._limits = {name: provider.limits for name, provider in providers.items()}
        self._publish = publish
        self._heartbeat = heartbeat
        self._subscribed = False
        self._cooling_until: dict[str, float] = {}
        """By the loop's clock: these cool down, or did a moment ago."""
        self._in_flight: defaultdict[str, set[str]] = defaultdict(set)

    def permit(self, lease: Lease, prompt_bytes: Callable[[], int], used: Callable[[], Usage]) -> ProviderPermit:
        """That of one attempt; ``prompt_bytes`` and ``used`` tell the size of its prompt and what its calls took."""
        return ProviderPermit(self, lease, prompt_bytes, used)

    def limits(self, provider: str) -> Limits:
        """The limits of a provider, as this worker's table has them."""
        return self._limits.get(provider, Limits())

    def asks(self, provider: str) -> bool:
        """Whether the store could refuse a call."""
        return not self._subscribed or provider in self._cooling_until or bool(self.limits(provider))

    def cooling_until(self, provider: str) -> float:
        """When the present cool-down will be forgotten, by the loop's clock; a new one makes it later."""
        return self._cooling_until.get(provider, 0.0)

    async def admit(self, lease: Lease, tokens: int) -> Wait | None:
        """Take a place for an attempt that may use so many ``tokens``; when to ask again, if there is none."""
        provider, call = lease.agent.provider, _call(lease)
        limits = self.limits(provider)
        answer = await self._store.providers.admit(provider, call, limits, tokens)
        await self._wake(provider, answer.woken)
        if isinstance(answer, Wait):
            return answer
        if self.cooling_until(provider) < asyncio.get_running_loop().time():
            self._cooling_until.pop(provider, None)
        if limits:
            self._in_flight[provider].add(call)
        return None

    async def release(self, lease: Lease, admitted_with: int, used: int, calls: int) -> None:
        """Give the place back: so many ``calls`` were made, which ``used`` so many tokens."""
        provider, call = lease.agent.provider, _call(lease)
        self._in_flight[provider].discard(call)
        try:
            woken = await self._store.providers.release(
                provider, call, self.limits(provider), tokens=admitted_with, used=used, calls=calls
            )
            await self._wake(provider, woken)
        except Exception as error:
            # The answer that was paid for matters more than the place, which comes free by itself.
            log.warning("a place at %s is not given back: %s", provider, type(error).__name__)

    async def apply(self, lease: Lease, verdict: Verdict) -> Verdict:
        """What a failure means for all: a provider that asked for fewer requests gets none for a while.

        A step that asks this provider again is given its turn after the cool-down right away.
        """
        if not isinstance(verdict, RetryAfter | GiveUp) or lease.call is not None:
            return verdict
        failure = verdict.failure
        if failure.error_class is not ErrorClass.RATE_LIMITED:
            return verdict
        provider = failure.provider.name if failure.provider else lease.agent.provider
        seconds = min(failure.retry_after or _COOL_DOWN, _LONGEST)
        again = verdict if isinstance(verdict, RetryAfter) and not verdict.fallback else None
        self._cool_down(provider, seconds)
        try:
            turn = await self._store.providers.cool_down(provider, seconds, _call(lease) if again else None)
        except Exception as error:
            log.warning("%s cools down and the others do not know: %s", provider, type(error).__name__)
            return verdict
        return verdict if again is None else replace(again, delay=max(again.delay, turn))

    async def listen(self) -> None:
        """Hear of cool-downs, those of other workers too."""
        try:
            async for news in self._store.providers.news(self._names):
                if news is None:
                    self._subscribed = True
                else:
                    self._cool_down(news.provider, news.seconds)
        finally:
            self._subscribed = False

    async def renew_places(self) -> None:
        """Keep the places of the calls in flight, three times a lease."""
        while True:
            for provider, calls in self._in_flight.items():
                if calls and self.limits(provider).max_in_flight:
                    await self._store.providers.renew_places(provider, tuple(calls))
            await asyncio.sleep(self._heartbeat)

    def _cool_down(self, provider: str, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        self._cooling_until[provider] = max(until, self.cooling_until(provider))

    async def _wake(self, provider: str, calls: Sequence[str]) -> None:
        """Have the steps of ``calls`` delivered now; the place of one that waits no more goes to the next."""
        left = list(calls)
        while left:
            call = left.pop()
            conversation_id, run_id, step = call.split("/")
            promoted = await self._store.steps.promote(run_id, conversation_id, step)
            if promoted is not None:
                await follow_up(self._store, self._publish, [promoted])
            else:
                left += await self._store.providers.release(provider, call, self.limits(provider), tokens=0, used=0)


def _call(lease: Lease) -> str:
    return f"{lease.conversation_id}/{lease.run_id}/{lease.step}"
