"""An attempt's permit to call its provider."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Final, Protocol

from palaver.config.providers import Limits
from palaver.schemas.models import Usage
from palaver.steps.leases import Lease
from palaver.store.scripting.contracts.providers import Admitted, Wait

from .limit_keys import limit_keys_of

BYTES_A_TOKEN: Final = 4
"""Bytes of a prompt for each token: the providers' own rule of thumb for English text. The true count replaces it after
the call."""
_LONGEST_WAIT: Final = 30.0
"""Seconds after which a second call that may not begin asks again: it has no turn of its own."""


class Limiter(Protocol):
    """The methods of `ProviderLimiter` that a permit calls."""

    def limits(self, provider: str, /) -> Limits: ...
    def asks(self, limit_key: str, /) -> bool: ...
    def cooling_until(self, limit_key: str, /) -> float: ...
    def peek(self, lease: Lease, /) -> Awaitable[Wait | None]: ...
    def admit(self, lease: Lease, limit_key: str, tokens: int, /) -> Awaitable[Admitted | Wait]: ...
    def answered(self, lease: Lease, limit_keys: Iterable[str], probes: set[str], /) -> None: ...
    def forgo(self, lease: Lease, probes: set[str], /) -> Awaitable[None]: ...
    def release(self, lease: Lease, admitted_with: int, used: int, calls: int, /) -> Awaitable[None]: ...


class ProviderPermit:
    """An attempt's permit to call its provider: a context around all its model calls, with ``begin_call`` before each.

    Both answer a `Wait` if a call may not begin: none is made then. A second call is rare, and one that had to wait for
    a place might wait for ever for the attempt's own: it takes none, and those who come later wait for it as well.
    """

    def __init__(
        self, limiter: Limiter, lease: Lease, prompt_bytes: Callable[[], int], used: Callable[[], Usage]
    ) -> None:
        self.probes: set[str] = set()
        """The gates that this attempt shows to be well or out, and has not yet."""
        self._limiter = limiter
        self._lease = lease
        self._prompt_bytes = prompt_bytes
        self._used = used
        self._admitted_with: int | None = None
        """Tokens; None if no place is taken."""
        self._cooling_until: float | None = None
        """As it was when the newest call began."""

    async def __aenter__(self) -> Wait | None:
        """Ask for a place, where one is needed; when to ask again, if there is none.

        At the provider first: who is the one to probe a model must not lose that to a provider that is full, again and
        again. If the model says no, the provider's place goes on at once; who waits for a model that is known to be out
        does not ask for one.
        """
        agent, limit_keys = self._lease.agent, limit_keys_of(self._lease.agent)
        try:
            tokens = self._prompt_bytes() // BYTES_A_TOKEN + (agent.max_output_tokens or 0)
            wait = await self._limiter.peek(self._lease) or await self._enter(limit_keys.provider, tokens)
            if wait is None:
                if self._limiter.limits(agent.provider):
                    self._admitted_with = tokens
                # Who probes the provider need not be the one to probe the model as well: no step might be both.
                if not self.probes:
                    wait = await self._enter(limit_keys.model, 0)
        except BaseException:
            await self.leave_uncalled()
            raise
        if wait is not None:
            await self.leave_uncalled()
        return wait

    async def _enter(self, limit_key: str, tokens: int) -> Wait | None:
        if not self._limiter.asks(limit_key):
            return None
        answer = await self._limiter.admit(self._lease, limit_key, tokens)
        if isinstance(answer, Wait):
            return answer
        if answer.probes:
            self.probes.add(limit_key)
        return None

    async def leave_uncalled(self) -> None:
        """No call is made: others may have the probes, the place, and what it was to take."""
        await self._limiter.forgo(self._lease, self.probes)
        if self._admitted_with is not None:
            admitted_with, self._admitted_with = self._admitted_with, None
            await self._limiter.release(self._lease, admitted_with, 0, 0)

    def begin_call(self) -> Wait | None:
        """A call begins here; when to ask again, if a cool-down began since the call before."""
        before = self._cooling_until
        until = max(map(self._limiter.cooling_until, limit_keys_of(self._lease.agent)))
        if before is not None and until > before:
            return Wait("cooldown", min(until - asyncio.get_running_loop().time(), _LONGEST_WAIT))
        self._cooling_until = until
        return None

    def answered(self) -> None:
        """The model begins to answer: whatever comes of it, neither it nor its provider is out."""
        self._limiter.answered(self._lease, limit_keys_of(self._lease.agent), self.probes)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the place back, with what the calls took. What a failure says of an outage is seen later."""
        if not isinstance(error, Exception):
            await self._limiter.forgo(self._lease, self.probes)
        if self._admitted_with is not None:
            usage = self._used()
            taken = usage.input_tokens + usage.output_tokens or (self._admitted_with if error is None else 0)
            await self._limiter.release(self._lease, self._admitted_with, taken, max(1, usage.model_calls))
