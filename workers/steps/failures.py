"""The verdict on a step's failure, by its retry policy; a rate limit also affects other steps."""

from __future__ import annotations

import logging
from pathlib import Path
from traceback import extract_tb, format_list
from typing import Final

from palaver.errors import ErrorClass, Failure, ToolFailure, classify
from palaver.steps.leases import Lease
from palaver.steps.retry import RetryPolicy
from palaver.steps.verdicts import Continue, GiveUp, Postpone, RetryAfter, ToolOutcome, Verdict
from palaver.store.scripting.contracts.providers import Wait
from palaver.vocabulary.lifecycle import WaitReason

from ..models.limit_keys import limit_keys_of
from .attempt import Attempt
from .tool_failures import verdict_on_call, verdict_on_service

log = logging.getLogger("palaver.workers.steps.failures")

_OURS: Final = Path(__file__).parents[1]
_FRAMES: Final = 20
"""Frames of a traceback that are logged, the innermost."""


async def verdict_on(error: Exception, attempt: Attempt, policy: RetryPolicy) -> Verdict:
    """The verdict on an exception of a step's function. If the provider asked for fewer requests, all steps wait. If it
    is out, that costs the step no attempt."""
    lease, limiter = attempt.lease, attempt.runtime.limiter
    if not lease.kind.asks_model:
        log_raised(error, lease.answers.name, lease)
    if isinstance(error, ToolFailure) and attempt.tool is not None:
        return await verdict_on_call(error, attempt, attempt.tool, policy)
    failure = classify(error, source=attempt.source, provider=lease.agent.provider, model=lease.agent.model_name)
    if failure.error_class is ErrorClass.INTERNAL:
        log.exception("step %s/%s failed inside", lease.run_id, lease.step)
    if lease.kind.asks_model and failure.error_class is ErrorClass.AUTHENTICATION:
        moved = await attempt.runtime.key_refused(lease)
        if moved is not None:
            return moved
        failure = _named(failure, attempt)
    if lease.kind.asks_model:
        patient = bool(_own(policy, lease).patience)
        out = await limiter.met_outage(lease, failure, attempt.calls.permit.probes, patient=patient)
        if out is not None:
            return verdict_on_wait(out, attempt, policy)
    return await limiter.apply(lease, _by_policy(failure, lease, policy))


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


def verdict_on_wait(wait: Wait, attempt: Attempt, policy: RetryPolicy) -> Verdict:
    """The verdict on a step whose provider takes no call now, or whose tenant may make none. In an outage the policy
    says for how long it waits."""
    if attempt.service is not None:
        return verdict_on_service(wait, attempt, policy)
    if wait.failure is None:
        reason = WaitReason.TENANT_LIMIT if wait.of_tenant else WaitReason.PROVIDER_COOLDOWN
        return Postpone(wait.seconds, wait.code, reason)
    lease, policy = attempt.lease, _own(policy, attempt.lease)
    other = (
        lease.fallback is not None
        and policy.falls_back(wait.failure)
        and not attempt.runtime.limiter.is_circuit_open(limit_keys_of(lease.agent, lease.fallback))
    )
    judged = policy.outlast(wait.failure, wait.seconds, lease.out_for or 0.0, other_model=other)
    return judged if isinstance(judged, Postpone) else _given_up(judged, lease, policy)


def _by_policy(failure: Failure, lease: Lease, policy: RetryPolicy) -> Verdict:
    """The verdict of the retry policy: the run's own rules first, then those of the step kind."""
    policy = _own(policy, lease)
    judged = policy.decide(failure, lease.attempt, lease.elapsed)
    return judged if isinstance(judged, RetryAfter) else _given_up(judged, lease, policy)


def _own(policy: RetryPolicy, lease: Lease) -> RetryPolicy:
    """The policy of the step kind, behind the rules of the run: the API has replaced their name by them."""
    if lease.agent.retry is None or not lease.kind.asks_model:
        return policy
    return RetryPolicy.parse(lease.agent.retry, stored=True).over(policy)


def _given_up(judged: GiveUp, lease: Lease, policy: RetryPolicy) -> Verdict:
    """Return the verdict that follows: the run ends, or goes on with its next model, or its model is told."""
    failure = judged.failure
    if not lease.kind.asks_model:
        return Continue(outcomes=(ToolOutcome.failed(lease.answers, failure),)) if failure.recoverable else judged
    if lease.fallback is not None and policy.falls_back(failure):
        return RetryAfter(0.0, failure, fallback=True)
    return judged
