"""The verdict on a step's failure, by its retry policy. What the failure says of a provider or a service all workers
hear."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb, format_list
from typing import Final

from palaver.errors import ErrorClass, Failure, ToolFailure, classify
from palaver.errors.finding import ToolFinding
from palaver.steps.leases import Lease
from palaver.steps.retry import RetryPolicy
from palaver.steps.tool_retry import ToolPolicy, policy_for
from palaver.steps.verdicts import Continue, GiveUp, Postpone, RetryAfter, ToolOutcome, Verdict
from palaver.store.scripting.contracts.providers import Wait
from palaver.tools import ToolDeclaration
from palaver.vocabulary.lifecycle import WaitReason

from ..models.limit_keys import limit_keys_of
from ..sources.containment import failure_of
from .attempt import Attempt

log = logging.getLogger("palaver.workers.steps.failures")

_OURS: Final = Path(__file__).parents[1]
_FRAMES: Final = 20
"""Frames of a traceback that are logged, the innermost."""


async def verdict_on(error: Exception, attempt: Attempt, step: RetryPolicy) -> Verdict:
    """The verdict on an exception of a step's function, by the policy of the ``step``, which is that of its decorator,
    and by what goes before it (`policy_for`)."""
    if attempt.lease.kind.asks_model:
        return await _on_model(error, attempt, step)
    log_raised(error, attempt.lease.answers.name, attempt.lease)
    if isinstance(error, ToolFailure) and attempt.tool is not None:
        return await _on_tool(error, attempt, attempt.tool, step)
    failure = _classified(error, attempt)
    return _answered(step.decide(failure, attempt.lease.attempt, attempt.lease.elapsed), attempt)


def verdict_on_wait(wait: Wait, attempt: Attempt, step: RetryPolicy) -> Verdict:
    """The verdict on a step whose provider or service takes no call now, or whose tenant may make none. In an outage
    the policy says for how long it waits."""
    if attempt.tool is not None:
        return _on_service(wait, attempt, policy_for(step, attempt.tool, None))
    if wait.failure is None:
        reason = WaitReason.TENANT_LIMIT if wait.of_tenant else WaitReason.PROVIDER_COOLDOWN
        return Postpone(wait.seconds, wait.code, reason)
    lease = attempt.lease
    policy = policy_for(step, None, lease.agent.retry)
    other = (
        lease.fallback is not None
        and policy.falls_back(wait.failure)
        and not attempt.runtime.limiter.is_circuit_open(limit_keys_of(lease.agent, lease.fallback))
    )
    verdict = policy.outlast(wait.failure, wait.seconds, lease.out_for or 0.0, other_model=other)
    return verdict if isinstance(verdict, Postpone) else _or_next_model(verdict, lease, policy)


async def _on_model(error: Exception, attempt: Attempt, step: RetryPolicy) -> Verdict:
    """The verdict on a failure of a model step. If the provider asked for fewer requests, all steps wait. If it is out,
    that costs the step no attempt."""
    lease, limiter = attempt.lease, attempt.runtime.limiter
    failure = _classified(error, attempt)
    if failure.error_class is ErrorClass.AUTHENTICATION:
        moved = await attempt.runtime.key_refused(lease)
        if moved is not None:
            return moved
        failure = _named(failure, attempt)
    policy = policy_for(step, None, lease.agent.retry)
    outage = await limiter.met_outage(lease, failure, attempt.calls.permit.probes, patient=bool(policy.patience))
    if outage is not None:
        return verdict_on_wait(outage, attempt, step)
    verdict = policy.decide(failure, lease.attempt, lease.elapsed)
    return await limiter.apply(lease, _or_next_model(verdict, lease, policy))


async def _on_tool(error: ToolFailure, attempt: Attempt, tool: ToolDeclaration, step: RetryPolicy) -> Verdict:
    """The verdict on a failed call of ``tool``."""
    finding = error.finding or ToolFinding(failure_of(error), sent=True)
    policy = policy_for(step, tool, None)
    verdict = policy.decide(finding, attempt.lease.attempt, attempt.lease.elapsed)
    if attempt.service is None:
        return _answered(verdict, attempt)
    reported = await attempt.service.report(finding, verdict)
    if not isinstance(reported, Wait):
        return _answered(reported, attempt)
    outage = replace(reported, failure=replace(finding.failure, retryable=True))
    return _on_service(outage, attempt, policy, finding)


def _on_service(wait: Wait, attempt: Attempt, policy: ToolPolicy, finding: ToolFinding | None = None) -> Verdict:
    """The verdict on a call whose service takes none now: it waits, in an outage for as long as the policy says.
    Without a ``finding`` it was not made."""
    assert attempt.service is not None
    code = f"{attempt.service.name}:{wait.code}"
    if wait.failure is None:
        return Postpone(wait.seconds, code, WaitReason.SERVICE_COOLDOWN)
    verdict = policy.rules.outlast(wait.failure, wait.seconds, attempt.lease.out_for or 0.0, other_model=False)
    if isinstance(verdict, Postpone):
        return replace(verdict, code=code, reason=WaitReason.SERVICE_COOLDOWN, begun=finding is not None)
    sent = finding is not None and finding.sent
    return _answered(replace(verdict, failure=policy.noted(verdict.failure, sent=sent)), attempt)


def _answered(verdict: RetryAfter | GiveUp, attempt: Attempt) -> Verdict:
    """Return the verdict on a call: a failure that is given up is its result for the model, if the run can go on."""
    if isinstance(verdict, RetryAfter) or not verdict.failure.recoverable:
        return verdict
    return Continue(outcomes=(ToolOutcome.failed(attempt.lease.answers, verdict.failure),))


def _or_next_model(verdict: RetryAfter | GiveUp, lease: Lease, policy: RetryPolicy) -> RetryAfter | GiveUp:
    """Return the verdict on a model step: where it is given up, the run may go on with its next model."""
    if isinstance(verdict, GiveUp) and lease.fallback is not None and policy.falls_back(verdict.failure):
        return RetryAfter(0.0, verdict.failure, fallback=True)
    return verdict


def _classified(error: Exception, attempt: Attempt) -> Failure:
    lease = attempt.lease
    failure = classify(error, source=attempt.source, provider=lease.agent.provider, model=lease.agent.model_name)
    if failure.error_class is ErrorClass.INTERNAL:
        log.exception("step %s/%s failed inside", lease.run_id, lease.step)
    return failure


def _named(failure: Failure, attempt: Attempt) -> Failure:
    """The failure with the worker whose key was refused: others may have another one."""
    runtime = attempt.runtime
    note = runtime.capabilities.refused_keys.named(attempt.lease.agent.provider, runtime.worker_id)
    return failure.noting(note) if note else failure


def log_raised(error: Exception, tool: str, lease: Lease) -> None:
    """If a tool raised what it did not declare, log where; what the exception says may be content, so not that."""
    raised = error.__cause__
    if not isinstance(error, ToolFailure) or raised is None or isinstance(raised, ToolFailure):
        return
    # Above the tool's frames are our own.
    frames = [frame for frame in extract_tb(raised.__traceback__) if not Path(frame.filename).is_relative_to(_OURS)]
    name, where = type(raised).__name__[:100], "".join(format_list(frames[-_FRAMES:]))
    log.warning(
        "tool %s raised %s in %s/%s, try %d:\n%s", tool, name, lease.run_id, lease.step, lease.try_number, where
    )
