"""The verdict on a failed call of a tool, by the tool's policy, and on a call whose service takes none now."""

from __future__ import annotations

from dataclasses import replace

from palaver.errors import ToolFailure
from palaver.errors.finding import ToolFinding
from palaver.steps.retry import RetryPolicy
from palaver.steps.tool_retry import ToolPolicy
from palaver.steps.verdicts import Continue, GiveUp, Postpone, ToolOutcome, Verdict
from palaver.store.scripting.contracts.providers import Wait
from palaver.tools import ToolDeclaration
from palaver.vocabulary.lifecycle import WaitReason

from ..sources.containment import failure_of
from .attempt import Attempt


async def verdict_on_call(error: ToolFailure, attempt: Attempt, tool: ToolDeclaration, kind: RetryPolicy) -> Verdict:
    """The verdict on what a call of ``tool`` raised, by its policy over that of the step's ``kind``. What it says of
    the tool's service all workers hear, also if this call is not tried again."""
    finding = error.finding or ToolFinding(failure_of(error), sent=True)
    policy, service = _policy(tool, attempt, kind), attempt.service
    out = None if service is None else await service.met_outage(finding)
    if out is not None and policy.reason(finding) is not None:
        return _outlast(replace(out, failure=replace(finding.failure, retryable=True)), attempt, policy, finding)
    judged = policy.decide(finding, attempt.lease.attempt, attempt.lease.elapsed)
    if service is not None:
        judged = await service.apply(finding, judged)
    return _told(judged, attempt) if isinstance(judged, GiveUp) else judged


def verdict_on_service(wait: Wait, attempt: Attempt, kind: RetryPolicy) -> Verdict:
    """The verdict on a call that was not made, because its service takes none now."""
    assert attempt.tool is not None  # whose service it is
    if wait.failure is None:
        return Postpone(wait.seconds, _code(wait, attempt), WaitReason.SERVICE_COOLDOWN)
    return _outlast(wait, attempt, _policy(attempt.tool, attempt, kind), None)


def _outlast(wait: Wait, attempt: Attempt, policy: ToolPolicy, made: ToolFinding | None) -> Verdict:
    """Wait for the end of an outage for as long as the policy says, or tell the model of the last failure. ``made`` is
    the one of a call that was made."""
    assert wait.failure is not None  # the one of the outage
    judged = policy.rules.outlast(wait.failure, wait.seconds, attempt.lease.out_for or 0.0, other_model=False)
    if isinstance(judged, GiveUp):
        sent = made is not None and made.sent
        return _told(replace(judged, failure=policy.noted(judged.failure, sent=sent)), attempt)
    return replace(judged, code=_code(wait, attempt), reason=WaitReason.SERVICE_COOLDOWN, begun=made is not None)


def _code(wait: Wait, attempt: Attempt) -> str:
    assert attempt.service is not None  # which takes no call
    return f"{attempt.service.name}:{wait.code}"


def _told(judged: GiveUp, attempt: Attempt) -> Continue:
    """The model is told in place of a result, and the run goes on."""
    return Continue(outcomes=(ToolOutcome.failed(attempt.lease.answers, judged.failure),))


def _policy(tool: ToolDeclaration, attempt: Attempt, kind: RetryPolicy) -> ToolPolicy:
    """The policy of a tool over that of the step's ``kind``."""
    return ToolPolicy(kind, tool.idempotent, None if tool.retry is None else RetryPolicy.parse(tool.retry))
