"""Every step runs here: claim, work, decide on a failure, settle, publish.

The function of a kind of step (`@step`, workers/steps/registry.py) does the work and returns a verdict. This module
does everything around it: the lease, the verdict on an exception, cancels, drains, and the report to Flower.
"""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from celery.exceptions import Retry

from palaver.errors import Failure, StaleLease
from palaver.errors.vocabulary import TOOL_CLASSES
from palaver.processes.failpoints import failpoint
from palaver.secrets.redaction import add_names, redaction_scope
from palaver.steps.leases import Lease, Settled, Stray
from palaver.steps.verdicts import (
    AskPerson,
    Continue,
    Finish,
    GiveUp,
    HandBack,
    Postpone,
    RetryAfter,
    ToolOutcome,
    Verdict,
)
from palaver.store.scripting.contracts.providers import Wait
from palaver.telemetry.logs import bind_log_context, log_context
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.step_kinds import StepKind

from .active_step import ActiveStep, InterruptReason
from .attempt import Attempt, Function, HandlerOf, StepHandler
from .conversations import CachedConversation
from .failures import verdict_on, verdict_on_wait
from .outages import claim, settle
from .runtime import Runtime

log = logging.getLogger("palaver.workers.steps.step")


class StepFailed(Exception):
    """Flower shows this as a FAILURE or a RETRY, with the error's class, code and sentence and never with content."""


async def make_attempt(
    handler_of: HandlerOf, runtime: Runtime, kind: StepKind, run_id: str, conversation_id: str, name: str
) -> str:
    """Make one attempt of a step: the body of every Celery task. ``kind`` is that of the task.

    Returns a short text for the operator. Raises ``celery.exceptions.Retry`` for a step that will be retried (Celery
    publishes nothing: the due index keeps the delay) and ``StepFailed`` for one that ended its run.
    """
    known = runtime.conversations.get(conversation_id)
    with log_context(run=run_id, step=name), redaction_scope(), runtime.working_on(run_id, name) as active:
        try:
            lease: Lease | Stray | None = active.lease
            if lease is None:
                failpoint("step.delivered")
                lease = await claim(runtime, kind, run_id, conversation_id, name, known)
            else:
                failpoint("step.followed")
            if isinstance(lease, Stray):
                return f"stray: {lease.why}"
            bind_log_context(**lease.in_trace)
            failpoint("step.claimed")
            attempt = Attempt(lease, runtime, active)
            add_names(attempt.has_tool)
            verdict = attempt.with_usage(await _verdict(handler_of(lease.kind), attempt, known, active))
            failpoint("step.settling")
            shown, note = attempt.stream.close(verdict), attempt.trace_note(verdict)
            with runtime.in_place.offer(active, verdict, runtime.conversations.get(conversation_id)) as offer:
                settled = await settle(runtime, lease, verdict, shown=shown, trace_note=note, place=offer.place)
                for following in settled.following:
                    runtime.in_place.go_on(offer, following)
            runtime.histograms.settled(lease, verdict, settled, active)
            if not settled.goes_on:
                runtime.conversations.rest(conversation_id)
            if isinstance(verdict, GiveUp) and settled.status == RunStatus.FAILED:
                failure = verdict.failure
                log.warning("run %s failed at step %s: %s %s", run_id, name, failure.error_class, failure.code)
        except StaleLease:
            return "stale: another worker goes on"
    failpoint("step.settled")
    await runtime.follow_up(settled)
    return _for_flower(verdict, settled)


async def _verdict(
    handler: StepHandler, attempt: Attempt, known: CachedConversation | None, active: ActiveStep
) -> Verdict:
    """The verdict of the function, or the verdict on its interruption, on its failure, or on its provider's gate.

    Raises:
        StaleLease: the lease is lost, so the result of the work is dropped.
    """
    try:
        answer = await _work(handler.function, attempt, known, active)
    except StaleLease:
        raise
    except Exception as error:
        return await verdict_on(error, attempt, handler.retry)
    return verdict_on_wait(answer, attempt, handler.retry) if isinstance(answer, Wait) else answer


async def _work(
    function: Function, attempt: Attempt, known: CachedConversation | None, active: ActiveStep
) -> Verdict | Wait:
    """The answer of the function, or the verdict on its interruption. Raises what the function raises."""
    try:
        # A cancel may have come between the claim and here, when there was nothing to interrupt yet.
        active.begin(attempt.lease)
        if (missing := await attempt.missing_capability()) is not None:
            return missing
        attempt.load_conversation(known)
        answer = await function(attempt)
        await attempt.stream.flush()
        return answer
    except asyncio.CancelledError:
        match active.reason:
            case InterruptReason.CANCELLED:
                await attempt.stream.flush()
                return attempt.cut_off()
            case InterruptReason.LOST:
                raise StaleLease from None
            case InterruptReason.DRAIN | InterruptReason.PAUSED | None:
                return HandBack(active.begun)
    finally:
        active.end()


def _for_flower(verdict: Verdict, settled: Settled) -> str:
    match verdict:
        case RetryAfter(delay, failure) if settled.status == RunStatus.RUNNING:
            error = _step_failed(failure)
            raise Retry(message=str(error), exc=error, when=round(delay, 1))
        case Postpone(delay, code, reason) if settled.status == RunStatus.RUNNING:
            # Nothing failed: among the rows of RETRY it would hide what did.
            return f"waits {delay:.1f} s: {reason} {code}"
        case GiveUp(failure):
            raise _step_failed(failure)
        case AskPerson(question) if settled.status == RunStatus.REQUIRES_ACTION:
            return f"waits for the answer to a question of {question.asker}"
        case HandBack():
            return "handed back"
        case Continue(message=None, outcomes=(ToolOutcome(failure=Failure(error_class=error)),)):
            return f"{error}, told to the model: run is {settled.status}"
        case Continue() | Finish() | RetryAfter() | Postpone() | AskPerson():
            return f"run is {settled.status}"
        case _:
            assert_never(verdict)


def _step_failed(failure: Failure) -> StepFailed:
    # What a tool says of its error may be content.
    sentence = TOOL_CLASSES.get(failure.error_class, "") if failure.source == "tool" else failure.message
    code = "" if failure.code in sentence else f"{failure.code}: "
    return StepFailed(f"{failure.error_class}: {code}{sentence}")
