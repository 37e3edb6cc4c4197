"""The one place where a step happens: claim, run, judge, settle, publish.

    @step(retry=MODEL_CALL)
    async def call_model(work: Work) -> Verdict: ...

The function does the work and answers with a verdict. Everything around it is here: the lease, the judgement of
whatever it raises, cancels, drains, and what Flower is told.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from celery.exceptions import Retry

from palaver.errors import ErrorClass, Failure, NewerVersion, StaleLease, classify
from palaver.failpoints import failpoint
from palaver.leases import Lease, Settled, Stray
from palaver.lifecycle import StopReason, WaitReason
from palaver.retry import RetryPolicy
from palaver.store.providers import Wait
from palaver.verdicts import Continue, Finish, GiveUp, RetryAfter, ToolOutcome, Verdict
from workers.active_step import ActiveStep, InterruptReason
from workers.conversations import Conversation
from workers.provider_limiter import NotAdmitted
from workers.runtime import Runtime, away
from workers.work import Work

log = logging.getLogger(__name__)

SETTLE_FOR: Final = 60.0
"""Seconds that a finished step keeps its verdict while Redis is away: another model call costs more than the memory."""

OVERLONG: Final = 3
"""Tries to settle that took too long while Redis was well: the verdict is to blame, which would come back for ever."""
_NOT_TAKEN: Final = "The outcome of this step took the store too long, each time."

Function = Callable[[Work], Awaitable[Verdict]]
Step = Callable[[Runtime, str, str, str], Awaitable[str]]


class StepFailed(Exception):
    """DeltaBuffer in Flower as a FAILURE: the error's class and code, never its content."""


def step(*, retry: RetryPolicy) -> Callable[[Function], Step]:
    """Make a function a step with a retry policy.

    The result is what a Celery task calls with the ids that it got. It answers one word for the operator, raises
    ``celery.exceptions.Retry`` for a step that will be tried again (the due index owns the delay: nothing is
    published by it) and ``StepFailed`` for one that ended its run.
    """

    def decorate(function: Function) -> Step:
        async def attempt(runtime: Runtime, run_id: str, conversation_id: str, name: str) -> str:
            known = runtime.conversations.get(conversation_id)
            with runtime.working_on(run_id, name) as active:
                failpoint("step.delivered")
                try:
                    lease = await _claim(runtime, run_id, conversation_id, name, known)
                except NewerVersion:
                    return "stray: for a newer worker"
                except Exception as error:
                    if not away(error):
                        raise
                    return f"not claimed, left to the sweeper: {type(error).__name__}"
                if isinstance(lease, Stray):
                    return f"stray: {lease.why}"
                failpoint("step.claimed")
                protocol = runtime.model.protocol(lease.agent)
                conversation = Conversation(protocol)
                if lease.call is None:
                    conversation = runtime.conversations.take_in(known, lease, protocol)
                work = Work(lease, runtime, conversation, active)
                verdict = await _work(function, work, active, retry)
                failpoint("step.settling")
                try:
                    if verdict is None:
                        return await _let_go(runtime, work, active)
                    if isinstance(verdict, Wait):
                        return await _postpone(runtime, lease, verdict)
                    verdict = work.accounted(verdict)
                    if isinstance(verdict, RetryAfter | GiveUp):
                        verdict = await runtime.limiter.apply(lease, verdict)
                    settled = await _settle(runtime, lease, verdict, streamed=work.withdraws(verdict))
                except StaleLease:
                    return "stale: somebody else goes on"
            failpoint("step.settled")
            await runtime.follow_up(settled)
            failpoint("step.published")
            return _for_flower(verdict, settled)

        return attempt

    return decorate


async def _claim(
    runtime: Runtime, run_id: str, conversation_id: str, name: str, known: Conversation | None
) -> Lease | Stray:
    """Claim, and ask again if the answer is lost: it may have been a lease, and nobody else would know that the work on
    it has not begun. Raises what Redis does when half of that lease has gone by.

    If what is ``known`` of the conversation is in the form of another protocol, the same lease is asked for with the
    whole log.
    """
    nonce, clock = secrets.token_hex(8), asyncio.get_running_loop().time
    deadline = clock() + runtime.settings.lease_seconds / 2
    while True:
        try:
            lease = await runtime.store.steps.claim(
                run_id,
                conversation_id,
                name,
                worker=runtime.worker_id,
                nonce=nonce,
                known=None if "/" in name else known.position if known else 0,
                known_at=known.position_at if known else 0,
            )
        except Exception as error:
            if not away(error) or clock() > deadline:
                raise
            await asyncio.sleep(0.1)
            continue
        if isinstance(lease, Stray) or known is None or known.protocol is runtime.model.protocol(lease.agent):
            return lease
        known = None


async def _work(function: Function, work: Work, active: ActiveStep, retry: RetryPolicy) -> Verdict | Wait | None:
    """The function's verdict, or the judgement of what it raised; None when the lease is to be let go, and a wait when
    the provider has no room."""
    lease = work.lease
    try:
        # A cancel may have come between the claim and here, when there was nothing to interrupt yet.
        active.begin(lease)
        verdict = await function(work)
        await work.flush()
        return verdict
    except asyncio.CancelledError:
        if active.reason is InterruptReason.CANCELLED:
            await work.flush()
            return Finish(work.partial, StopReason.CANCELLED)
        return None
    except NotAdmitted as refused:
        return refused.wait
    except StaleLease:
        active.reason = InterruptReason.LOST
        return None
    except Exception as error:
        failure = classify(error, source=work.source, provider=lease.agent.provider, model=lease.agent.model_name)
        if failure.error_class is ErrorClass.INTERNAL:
            log.exception("step %s/%s failed inside", lease.run_id, lease.step)
        return _judge(failure, lease, retry)
    finally:
        active.end()


def _judge(failure: Failure, lease: Lease, retry: RetryPolicy) -> Verdict:
    """What the policy says of a failure: the step's, with the run's own rules before it."""
    if lease.call is None and lease.agent.retry is not None:
        # The API has put the policy in the place of its name.
        retry = RetryPolicy.parse(lease.agent.retry).over(retry)
    judged = retry.judge(failure, lease.attempt, lease.elapsed)
    if isinstance(judged, RetryAfter):
        return judged
    if lease.call is not None:
        if failure.recoverable:
            return Continue(outcomes=(ToolOutcome.failed(lease.call, judged.failure),))
    elif lease.falls_back and retry.falls_back(failure):
        return RetryAfter(0.0, judged.failure, fallback=True)
    return judged


async def _settle(runtime: Runtime, lease: Lease, verdict: Verdict, *, streamed: bool) -> Settled:
    """Settle, through an outage of Redis if need be: the store takes the verdict as long as the fence still stands.

    What cannot be settled while Redis is well would come back for ever: after a few tries the run ends with that.

    Raises:
        StaleLease: it does not; somebody else goes on.
    """
    deadline, overlong = asyncio.get_running_loop().time() + SETTLE_FOR, 0
    while True:
        try:
            return await runtime.store.steps.settle(lease, verdict, streamed=streamed)
        except StaleLease:
            raise
        except Exception as error:
            failure = classify(error, provider=lease.agent.provider, model=lease.agent.model_name)
            if failure.code == "store_timeout" and await _is_well(runtime):
                overlong += 1
            if overlong >= OVERLONG:
                failure = Failure.of(ErrorClass.STORAGE, _NOT_TAKEN, code="not_settled", retryable=False)
            hopeless = overlong >= OVERLONG or failure.error_class is not ErrorClass.STORAGE
            if hopeless and not isinstance(verdict, GiveUp):
                # It would come back for ever: the run ends, and says why.
                if failure.error_class is ErrorClass.INTERNAL:
                    log.exception("cannot settle %s/%s", lease.run_id, lease.step)
                verdict = GiveUp(failure, StopReason.ERROR, verdict.usage)
                continue
            if asyncio.get_running_loop().time() > deadline:
                raise
            log.warning("cannot settle %s/%s yet: %s", lease.run_id, lease.step, type(error).__name__)
            await asyncio.sleep(0.5)


async def _is_well(runtime: Runtime) -> bool:
    """Whether Redis answers."""
    try:
        await runtime.store.ping()
    except Exception as error:
        if not away(error):
            raise
        return False
    return True


async def _let_go(runtime: Runtime, work: Work, active: ActiveStep) -> str:
    """Draining or pausing: hand the lease back so that somebody else goes on. Lost: there is nothing to hand back."""
    if active.reason is InterruptReason.LOST:
        return "lost"
    try:
        settled = await runtime.store.steps.hand_back(work.lease, begun=active.begun, usage=work.usage)
    except Exception as error:
        if not away(error):
            raise
        return f"not handed back, its lease runs out: {type(error).__name__}"
    await runtime.follow_up(settled)
    return "handed back"


async def _postpone(runtime: Runtime, lease: Lease, wait: Wait) -> str:
    """Give the lease up until the provider has room. Raises what Flower shows as a RETRY."""
    reason = WaitReason.PROVIDER_COOLDOWN
    settled = await runtime.store.steps.postpone(lease, wait.seconds, reason, code=wait.code)
    await runtime.follow_up(settled)
    if settled.status != "running":
        return settled.status
    raise Retry(message=reason, exc=StepFailed(f"{reason}: {wait.code}"), when=round(wait.seconds, 1))


def _for_flower(verdict: Verdict, settled: Settled) -> str:
    match verdict:
        case RetryAfter() if settled.status == "running":
            code = f"{verdict.failure.error_class}: {verdict.failure.code}"
            raise Retry(message=code, exc=StepFailed(code), when=round(verdict.delay, 1))
        case GiveUp():
            raise StepFailed(f"{verdict.failure.error_class}: {verdict.failure.code}")
        case _:
            return settled.status
