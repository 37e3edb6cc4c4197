"""Carries out ticks that are due: any number of processes may do so at once, and die in between.

A tick is claimed by a script, and its run is submitted under an idempotency key of the schedule and the tick. A process
that goes on where another process died submits the very same, and finds the run that is there (ADR 0118).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from palaver.errors import (
    ErrorClass,
    IdempotencyMismatch,
    NoRoom,
    NotDurable,
    Refused,
    StateConflict,
    TimePassed,
    UnknownRun,
    classify,
)
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.bearers import caller_now, run_begun_before
from palaver.operations.control import cancel
from palaver.operations.planned import Planned
from palaver.operations.submitting import begin
from palaver.schemas.schedules import ScheduleTick
from palaver.store.reading.records import instant, moment
from palaver.store.redis.reach import within

from .keeping import submission_of, times_of
from .schedules import NO_TICK
from .ticks import DueTick, TickClaim, Ticks
from .times import GRACE

_log: Final = logging.getLogger("palaver.planned")
_AGAIN: Final = 5.0
"""Seconds after which a tick is tried again that waits for the run before it, or for room."""
_PATIENCE: Final = 600_000
"""Milliseconds for which a tick waits for room."""
_TOGETHER: Final = 8
"""Ticks that a process carries out at once."""
_REFUSALS: Final = (Refused, StateConflict, IdempotencyMismatch, TimePassed)
_KEY: Final = "\x1fschedule"
"""The beginning of the idempotency keys of ticks. No header can carry one."""


class Scheduler(Planned[DueTick]):
    """Looks for ticks that are due, and carries them out."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ticks = backend.store.part(Ticks)
        self._room = asyncio.Semaphore(_TOGETHER)

    async def due(self) -> tuple[list[DueTick], float | None]:
        return await within_deadline(self._ticks.due())

    async def attend(self, due: DueTick) -> bool:
        async with self._room:
            try:
                claimed = await self._claim(due)
                return claimed is not None and await self._carry_out(claimed)
            except Exception as error:
                if classify(error).error_class is ErrorClass.STORAGE:
                    return False
                _log.exception("a tick of a schedule is not carried out")
                await within_deadline(self._ticks.defer(due.tenant, due.name))
                return False

    async def _claim(self, due: DueTick) -> TickClaim | None:
        now = await within_deadline(self._ticks.now())
        if due.next is None:
            # Its last one was claimed, or it is not there any more.
            claiming = self._ticks.claim(due, 0, None, NO_TICK)
        else:
            plan = times_of(due.tenant, due.name, due.timing).plan(due.next, now)
            claiming = self._ticks.claim(due, plan.tick, plan.missed_since, plan.following)
        return await within_deadline(claiming)

    async def _carry_out(self, claimed: TickClaim) -> bool:
        entry = await self._outcome(claimed)
        if entry is None:
            return await within_deadline(self._ticks.wait(claimed, _AGAIN))
        return await within_deadline(self._ticks.settle(claimed, entry))

    async def _outcome(self, claimed: TickClaim) -> ScheduleTick | None:
        """Return what becomes of a tick; None if it waits."""
        now = await within_deadline(self._ticks.now())
        entry = ScheduleTick(
            tick=instant(claimed.tick),
            at=instant(now),
            outcome="missed",
            missed_since=moment(claimed.missed_since),
        )
        due_at = times_of(claimed.tenant, claimed.name, claimed.timing).at(claimed.tick)
        if claimed.timing.missed == "never" and claimed.claimed_at - due_at > GRACE:
            return entry
        if now - claimed.claimed_at > self._backend.settings.retention * 500:
            # An idempotency key is not kept for ever: it is not known any more whether the run was submitted.
            why = "no worker was there for so long that it is not known whether its run was submitted"
            return entry.model_copy(update={"code": "unknown_outcome", "message": why})
        try:
            caller = await caller_now(self._backend, claimed.tenant, claimed.order.bearer)
            with within(caller.reach):
                if claimed.last is not None and not await self._free(claimed, claimed.last, caller):
                    if claimed.timing.overlap == "queue":
                        return None
                    return entry.model_copy(update={"outcome": "skipped", "run_id": claimed.last})
                return entry.model_copy(update={"outcome": "started", "run_id": await self._submit(claimed, caller)})
        except NotDurable:
            # The same again finds the run, and waits for its safety.
            return None
        except NoRoom as error:
            if now - claimed.claimed_at < _PATIENCE:
                return None
            refusal = _refusal(error.code, str(error))
        except _REFUSALS as error:
            refusal = _refused(error)
        before = await run_begun_before(self._backend, claimed.tenant, claimed.order.bearer, _key(claimed))
        return entry.model_copy(update=refusal if before is None else {"outcome": "started", "run_id": before})

    async def _free(self, claimed: TickClaim, last: str, caller: Caller) -> bool:
        """Tell whether the run of the tick before has ended; where the schedule says so, see that it does."""
        try:
            if (await within_deadline(self._backend.store.runs.get(last))).status.terminal:
                return True
            if claimed.timing.overlap == "cancel":
                await cancel(self._backend, last, caller, reason=f"the next tick of the schedule {claimed.name}")
        except UnknownRun:
            return True
        except StateConflict as conflict:
            if conflict.code != "run_ended":
                raise
        return claimed.timing.overlap == "cancel"

    async def _submit(self, claimed: TickClaim, caller: Caller) -> str:
        submission = submission_of(claimed.name, claimed.order.run)
        voices = {claimed.updated_by or ""}
        return (await begin(self._backend, submission, caller, key=_key(claimed), voices=voices)).run_id


def _key(claimed: TickClaim) -> str:
    return f"{_KEY} {claimed.name} {claimed.tick}"


def _refused(error: Exception) -> dict[str, str]:
    match error:
        case Refused():
            return _refusal(error.code, error.detail or "")
        case StateConflict():
            return _refusal(error.code, str(error))
        case _:
            return _refusal("idempotency_key_reused" if isinstance(error, IdempotencyMismatch) else "invalid_time", "")


def _refusal(code: str, message: str) -> dict[str, str]:
    return {"outcome": "refused", "code": code, "message": message[:500]}
