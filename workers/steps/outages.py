"""Claiming and settling while Redis may be away: what is repeated, and for how long."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Final

from palaver.errors import ErrorClass, Failure, NewerVersion, StaleLease, classify
from palaver.steps.leases import Lease, OfferedPlace, Settled, Shown, Stray
from palaver.steps.verdicts import GiveUp, HandBack, Verdict
from palaver.telemetry.outage_log import outage_reason
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.step_kinds import StepKind

from .conversations import CachedConversation
from .runtime import Runtime, is_store_outage

log = logging.getLogger("palaver.workers.steps.outages")

SETTLE_FOR: Final = 60.0
"""Seconds that a finished step keeps its verdict while Redis is away: another model call costs more than the memory."""
OVERLONG: Final = 3
"""Number of slow attempts to settle while Redis is well. Then the verdict itself is the cause, and the step would be
repeated for ever."""
_NOT_TAKEN: Final = "The outcome of this step took the store too long, each time."


class NotSettled(Exception):
    """Redis is away for too long: the lease expires, and another worker does the step. Flower shows a FAILURE."""


async def claim(
    runtime: Runtime,
    kind: StepKind,
    run_id: str,
    conversation_id: str,
    step: str,
    known: CachedConversation | None,
) -> Lease | Stray:
    """Claim a step that was delivered to workers of this kind, with the messages that the cached conversation ``known``
    does not have yet.

    If the answer is lost, the claim is repeated for half a lease: the answer may have been a lease, and only this
    worker knows that the work has not begun. If what is known was made for another model and cannot be told this one,
    the same lease is asked for with the whole log.
    """
    nonce, clock = secrets.token_hex(8), asyncio.get_running_loop().time
    deadline = clock() + runtime.settings.lease_seconds / 2
    while True:
        try:
            with runtime.in_place.claiming():
                lease = await runtime.store.steps.claim(
                    run_id,
                    conversation_id,
                    step,
                    queues=runtime.queues_of(kind),
                    worker=runtime.worker_id,
                    nonce=nonce,
                    known=None if call_of(step) else known.position if known else 0,
                    known_at=known.position_at if known else 0,
                )
        except NewerVersion as error:
            return Stray(f"for a worker with the feature {error.feature}" if error.feature else "for a newer worker")
        except Exception as error:
            if not is_store_outage(error):
                raise
            if clock() > deadline:
                return Stray(f"not claimed, left to the sweeper: {type(error).__name__}")
            await asyncio.sleep(0.1)
            continue
        if isinstance(lease, Stray):
            return lease
        runtime.publish(lease.deliveries)
        if known is None or not lease.kind.asks_model:
            return lease
        if known.turn_to(runtime.terms.protocol(lease.agent), lease.agent.model):
            return lease
        known = None


async def settle(
    runtime: Runtime,
    lease: Lease,
    verdict: Verdict,
    *,
    shown: Shown,
    trace_note: bytes | None = None,
    place: OfferedPlace | None = None,
) -> Settled:
    """Settle, and retry through an outage of Redis: the store accepts the verdict as long as the fence is the newest. A
    lease that is handed back is not worth the wait.

    A verdict that cannot be settled while Redis is well would be repeated for ever, so after a few tries the run ends
    with that error.

    Raises:
        StaleLease: the lease is not the newest; another worker has the step.
        NotSettled: the outage takes too long.
    """
    deadline, overlong = asyncio.get_running_loop().time() + SETTLE_FOR, 0
    while True:
        try:
            return await runtime.store.steps.settle(lease, verdict, shown=shown, trace_note=trace_note, place=place)
        except StaleLease:
            raise
        except Exception as error:
            failure = classify(error, provider=lease.agent.provider, model=lease.agent.model_name)
            if failure.code == "store_timeout" and await _is_well(runtime):
                overlong += 1
            if overlong >= OVERLONG:
                failure = Failure.of(ErrorClass.STORAGE, _NOT_TAKEN, code="not_settled", retryable=False)
            hopeless = overlong >= OVERLONG or failure.error_class is not ErrorClass.STORAGE
            if hopeless and failure.error_class is ErrorClass.INTERNAL:
                log.exception("cannot settle %s/%s", lease.run_id, lease.step)
            if hopeless and not isinstance(verdict, GiveUp | HandBack):
                # The step would be repeated for ever: the run ends with this error.
                verdict = GiveUp(failure, StopReason.ERROR, verdict.usage)
                continue
            if isinstance(verdict, HandBack) or asyncio.get_running_loop().time() > deadline:
                raise NotSettled(f"the lease runs out by itself: {type(error).__name__}") from error
            runtime.unsettled.add(f"{lease.run_id}/{lease.step}", outage_reason(error))
            await asyncio.sleep(0.5)


async def _is_well(runtime: Runtime) -> bool:
    """Tell whether Redis answers."""
    try:
        await runtime.store.ping()
    except Exception as error:
        if not is_store_outage(error):
            raise
        return False
    return True
