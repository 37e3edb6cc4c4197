"""A tool call's permit to call its service: the same gate as that of a model's provider, under a key of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType

from palaver.config.providers import Limits
from palaver.errors import ErrorClass, Failure, ToolFailure
from palaver.errors.finding import ToolFinding
from palaver.errors.vocabulary import TOOL_CLASSES
from palaver.steps.leases import Lease
from palaver.steps.verdicts import GiveUp, RetryAfter
from palaver.store.scripting.contracts.providers import Wait
from palaver.tools.service import gate_of_service

from ..models.provider_limiter import ProviderLimiter
from ..sources.containment import CallLeft


def services_of(services: Mapping[str, Limits]) -> Mapping[str, Limits]:
    """Return limits by the key of their service in the store; ``services`` has them by ``limit_key``."""
    return {gate_of_service(name): limits for name, limits in services.items()}


class ServicePermit:
    """A context around a tool call. It answers a `Wait` if the call may not begin now: none is made then."""

    def __init__(self, limiter: ProviderLimiter, lease: Lease, name: str) -> None:
        self.name = name
        self._key = gate_of_service(name)
        self._limiter = limiter
        self._lease = lease
        self._probes: set[str] = set()
        """Its key, if this call shows whether an outage is over, and has not yet."""
        self._admitted = False
        self._called = False

    async def __aenter__(self) -> Wait | None:
        """Ask for a place, where one is needed."""
        if not self._limiter.asks(self._key):
            return None
        answer = await self._limiter.admit(self._lease, self._key, 0)
        if isinstance(answer, Wait):
            return answer
        self._admitted = bool(self._limiter.limits(self._key))
        if answer.probes:
            self._probes.add(self._key)
        return None

    def begin(self) -> None:
        """The call is made: from here on it counts."""
        self._called = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the place back. With a failed call, `report` does."""
        if isinstance(error, ToolFailure):
            return
        if self._called and (error is None or (isinstance(error, CallLeft) and error.answered)):
            self._limiter.answered(self._lease, (self._key,), self._probes)
        else:
            await self._limiter.forgo(self._lease, self._probes)
        await self._leave()

    async def report(self, finding: ToolFinding, verdict: RetryAfter | GiveUp) -> RetryAfter | GiveUp | Wait:
        """Give the place of a failed call back, and tell all workers what the failure says of the service, whatever
        becomes of this call by the ``verdict`` of its policy.

        If the service is out, a call that may be tried again is to wait. If the service asks to be left alone, a call
        that is tried again comes after that.
        """
        await self._leave()
        failure, sign = finding.failure, finding.sign
        if finding.answered:
            self._limiter.answered(self._lease, (self._key,), self._probes)
        if sign is None:
            await self._limiter.forgo(self._lease, self._probes)
        else:
            outage = await self._limiter.report_failure(
                self._lease, self._key, _for_all(failure), self._probes, of_request=sign.of_request
            )
            if outage is not None and verdict.failure.retryable:
                return outage
        if failure.error_class is ErrorClass.RATE_LIMITED or (failure.retry_after is not None and sign is not None):
            return await self._limiter.leave_alone(self._lease, self._key, failure.retry_after, verdict)
        return verdict

    async def _leave(self) -> None:
        if self._admitted:
            await self._limiter.leave(self._lease, self._key, called=self._called)


def _for_all(failure: Failure) -> Failure:
    """Return the failure without words of the tool's: runs of others wait for the service, too, and show it."""
    sentence = TOOL_CLASSES[failure.error_class]
    return replace(Failure.of(failure.error_class, sentence, code=failure.code, source="tool"), recoverable=True)
