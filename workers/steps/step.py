"""Every step runs here: claim, work, decide on a failure, settle, publish.

The function of a kind of step (`@step`, workers/steps/registry.py) does the work and returns a verdict. This module
does everything around it: the lease, the verdict on an exception, cancels, drains, and the report to Flower.
"""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from celery.exceptions import Retry

from palaver.errors import FACTS, Failure, StaleLease
from palaver.processes.failpoints import failpoint
from palaver.secrets.redaction import keeping
from palaver.steps.leases import Settled, Stray
from palaver.steps.verdicts import Continue, Finish, GiveUp, HandBack, Postpone, RetryAfter, ToolOutcome, Verdict
from palaver.telemetry.logs import about, mention
from palaver.vocabulary.lifecycle import RunStatus, StopReason

from .active_step import ActiveStep, InterruptReason
from .conversations import CachedConversation
from .failures import verdict_on
from .outages import claim, settle
from .registry import Function, StepHandler
from .runtime import Runtime
from .work import Work

log = logging.getLogger("palaver.workers.steps.step")


class StepFailed(Exception):
    """Flower shows this as a FAILURE or a RETRY, with the error's class, code and sentence and never with content."""


async def attempt(handler: StepHandler, runtime: Runtime, run_id: str, conversation_id: str, name: str) -> str:
    """Make one attempt of a step: the body of every Celery task.

    Returns a short text for the operator. Raises ``celery.exceptions.Retry`` for a step that will be retried (Celery
    publishes nothing: the due index keeps the delay) and ``StepFailed`` for one that ended its run.
    """
    known = runtime.conversations.get(conversation_id)
    with about(run=run_id, step=name), keeping(), runtime.working_on(run_id, name) as active:
        failpoint("step.delivered")
        try:
            lease = await claim(runtime, run_id, conversation_id, name, known)
            if isinstance(lease, Stray):
                return f"stray: {lease.why}"
            mention(**lease.in_trace)
            failpoint("step.claimed")
            work = Work(lease, runtime, CachedConversation(runtime.terms.protocol(lease.agent)), active)
            verdict = work.accounted(await _verdict(handler, work, known, active))
            failpoint("step.settling")
            settled = await settle(runtime, lease, verdict, shown=work.shown_of(verdict), told=work.told(verdict))
            runtime.histograms.settled(handler.kind, lease, verdict, settled, active)
            if isinstance(verdict, GiveUp) and settled.status == RunStatus.FAILED:
                failure = verdict.failure
                log.warning("run %s failed at step %s: %s %s", run_id, name, failure.error_class, failure.code)
        except StaleLease:
            return "stale: somebody else goes on"
    failpoint("step.settled")
    await runtime.follow_up(settled)
    return _for_flower(verdict, settled)


async def _verdict(handler: StepHandler, work: Work, known: CachedConversation | None, active: ActiveStep) -> Verdict:
    """The verdict of the function, or the verdict on its interruption or its failure.

    Raises:
        StaleLease: the lease is lost, so the result of the work is dropped.
    """
    try:
        return await _work(handler.function, work, known, active)
    except StaleLease:
        raise
    except Exception as error:
        return await verdict_on(error, work, handler.retry)


async def _work(function: Function, work: Work, known: CachedConversation | None, active: ActiveStep) -> Verdict:
    """The verdict of the function, or the verdict on its interruption. Raises what the function raises."""
    try:
        # A cancel may have come between the claim and here, when there was nothing to interrupt yet.
        active.begin(work.lease)
        work.take_in(known)
        verdict = await work.elsewhere() or await function(work)
        await work.flush()
        return verdict
    except asyncio.CancelledError:
        match active.reason:
            case InterruptReason.CANCELLED:
                await work.flush()
                return Finish(work.partial, StopReason.CANCELLED, opaque=work.partial_opaque)
            case InterruptReason.LOST:
                raise StaleLease from None
            case InterruptReason.DRAIN | InterruptReason.PAUSED | None:
                return HandBack(active.begun)
    finally:
        active.end()


def _for_flower(verdict: Verdict, settled: Settled) -> str:
    match verdict:
        case RetryAfter(delay, failure) if settled.status == RunStatus.RUNNING:
            error = _told(failure)
            raise Retry(message=str(error), exc=error, when=round(delay, 1))
        case Postpone(delay, code, reason) if settled.status == RunStatus.RUNNING:
            # Nothing failed: among the rows of RETRY it would hide what did.
            return f"waits {delay:.1f} s: {reason} {code}"
        case GiveUp(failure):
            raise _told(failure)
        case HandBack():
            return "handed back"
        case Continue(message=None, outcomes=(ToolOutcome(failure=Failure(error_class=error)),)):
            return f"{error}, told to the model: run is {settled.status}"
        case Continue() | Finish() | RetryAfter() | Postpone():
            return f"run is {settled.status}"
        case _:
            assert_never(verdict)


def _told(failure: Failure) -> StepFailed:
    # What a tool says of its error may be content.
    said = FACTS[failure.error_class].sentence if failure.source == "tool" else failure.message
    code = "" if failure.code in said else f"{failure.code}: "
    return StepFailed(f"{failure.error_class}: {code}{said}")
