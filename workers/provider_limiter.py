"""The gate in front of the providers, as one worker process knows it.

The store decides who may call. It is asked only where it could say no: for a provider with limits, and for one that
cools down, which every worker hears the moment it begins. A worker that cannot hear asks each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from palaver.errors import ErrorClass
from palaver.leases import Delivery, Lease
from palaver.models import Usage
from palaver.providers import Limits, Provider
from palaver.store import Store
from palaver.store.providers import Wait
from palaver.verdicts import GiveUp, RetryAfter

log = logging.getLogger(__name__)

_COOL_DOWN: Final = 1.0
"""Seconds, when the provider does not say how long: the first back-off of most clients."""
_LONGEST: Final = 300.0
"""Seconds that one answer may stop everybody for: the cap of the usual policy. Who asks for more is asked again."""
_BYTES_A_TOKEN: Final = 4
"""Of a prompt: the providers' own rule of thumb for English text. The true count replaces it after the call."""


class NotAdmitted(Exception):
    """There is no room for the call now. Not a failure: the step waits, and no attempt of it was made."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.code)
        self.wait = wait


class ProviderLimiter:
    """Lets model calls through, or says when to come again."""

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Provider],
        publish: Callable[[Sequence[Delivery]], None],
        heartbeat: float,
    ) -> None:
        self._store = store
        self._names = tuple(providers)
        self._limits = {name: provider.limits for name, provider in providers.items()}
        self._limited = frozenset(name for name, limits in self._limits.items() if limits)
        self._publish = publish
        self._heartbeat = heartbeat
        self._hearing = False
        self._ask_until: dict[str, float] = {}
        """By the loop's clock: these cool down, or did a moment ago."""
        self._in_flight: defaultdict[str, set[str]] = defaultdict(set)

    def passing(
        self, lease: Lease, provider: str, prompt_bytes: int, used: Callable[[], Usage]
    ) -> AbstractAsyncContextManager[None]:
        """Around the calls of one attempt: entered when the first may begin, and left when the last has ended.

        A second call is rare, and one that gave its place back might wait for another one for ever: it never waits,
        and those who come later wait for it as well. ``used`` tells what the calls took.

        Raises, on entering:
            NotAdmitted: it may not.
        """
        if self._hearing and provider not in self._limited and provider not in self._ask_until:
            return _OPEN
        return self._asking(lease, provider, prompt_bytes, used)

    @contextlib.asynccontextmanager
    async def _asking(
        self, lease: Lease, provider: str, prompt_bytes: int, used: Callable[[], Usage]
    ) -> AsyncIterator[None]:
        call, limits = _call(lease), self._limits.get(provider, Limits())
        tokens = prompt_bytes // _BYTES_A_TOKEN + (lease.agent.max_output_tokens or 0)
        answer = await self._store.providers.admit(provider, call, limits, tokens)
        await self._wake(provider, answer.woken)
        if isinstance(answer, Wait):
            raise NotAdmitted(answer)
        if self._ask_until.get(provider, 0) < asyncio.get_running_loop().time():
            self._ask_until.pop(provider, None)
        if not limits:
            yield
            return
        self._in_flight[provider].add(call)
        guess = 0
        try:
            yield
            guess = tokens
        finally:
            self._in_flight[provider].discard(call)
            usage = used()
            taken = usage.input_tokens + usage.output_tokens or guess
            await self._release(provider, call, tokens, taken, usage.model_calls)

    def asks_until(self, provider: str) -> float:
        """When the present cool-down will be forgotten, by the loop's clock; a new one makes it later."""
        return self._ask_until.get(provider, 0.0)

    async def apply(self, lease: Lease, verdict: RetryAfter | GiveUp) -> RetryAfter | GiveUp:
        """What a failure means for all: a provider that asked for fewer requests gets none for a while.

        A step that asks this provider again is given its turn after the cool-down right away.
        """
        failure = verdict.failure
        if failure.error_class is not ErrorClass.RATE_LIMITED or lease.call is not None:
            return verdict
        provider = failure.provider.name if failure.provider else lease.agent.provider
        seconds = min(failure.retry_after or _COOL_DOWN, _LONGEST)
        again = verdict if isinstance(verdict, RetryAfter) and not verdict.fallback else None
        self._hear(provider, seconds)
        try:
            turn = await self._store.providers.cool(provider, seconds, _call(lease) if again else None)
        except Exception as error:
            log.warning("%s cools down and the others do not know: %s", provider, type(error).__name__)
            return verdict
        return verdict if again is None else replace(again, delay=max(again.delay, turn))

    async def listen(self) -> None:
        """Hear of cool-downs, those of other workers too."""
        try:
            async for heard in self._store.providers.news(self._names):
                if heard is None:
                    self._hearing = True
                else:
                    self._hear(heard.provider, heard.seconds)
        finally:
            self._hearing = False

    async def hold(self) -> None:
        """Keep the places of the calls in flight, three times a lease."""
        while True:
            for provider, calls in self._in_flight.items():
                if calls and self._limits[provider].max_in_flight:
                    await self._store.providers.hold(provider, tuple(calls))
            await asyncio.sleep(self._heartbeat)

    def _hear(self, provider: str, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        self._ask_until[provider] = max(until, self._ask_until.get(provider, until))

    async def _release(self, provider: str, call: str, tokens: int, used: int, calls: int) -> None:
        limits = self._limits[provider]
        try:
            woken = await self._store.providers.release(provider, call, limits, tokens=tokens, used=used, calls=calls)
            await self._wake(provider, woken)
        except Exception as error:
            # The answer that was paid for matters more than the place, which comes free by itself.
            log.warning("a place at %s is not given back: %s", provider, type(error).__name__)

    async def _wake(self, provider: str, calls: Sequence[str]) -> None:
        """Have the steps of ``calls`` delivered now; the place of one that waits no more goes to the next."""
        left = list(calls)
        while left:
            call = left.pop()
            conversation_id, run_id, step = call.split("/")
            recalled = await self._store.steps.recall(run_id, conversation_id, step)
            if recalled is not None:
                self._publish(recalled.deliveries)
            else:
                left += await self._store.providers.release(provider, call, self._limits[provider], tokens=0, used=0)


_OPEN: Final = contextlib.nullcontext()


def _call(lease: Lease) -> str:
    return f"{lease.conversation_id}/{lease.run_id}/{lease.step}"
