"""Goes on with batches: begins cells behind a window, and writes what came of them.

Cells are written down before their runs are submitted, each under an idempotency key of the batch, the cell and the
attempt. So a process that goes on where another process died submits the very same, and knows every run (ADR 0118).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import orjson
from pydantic import ValidationError

from palaver.errors import (
    CorruptRecord,
    ErrorClass,
    IdempotencyMismatch,
    NoRoom,
    NotDurable,
    Refused,
    StateConflict,
    UnknownRun,
    classify,
)
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.bearers import caller_now, run_begun_before
from palaver.operations.control import cancel
from palaver.operations.planned import Planned
from palaver.operations.submitting import begin
from palaver.schemas.batches import BatchItem
from palaver.schemas.bearers import Bearer
from palaver.schemas.models import Run, Submission
from palaver.store.redis.reach import Reach, within
from palaver.telemetry.metrics import NANO
from palaver.vocabulary.limits import count_exceeded, limit_of

from .contract import EndedCell
from .keeping import scoring_of, submission_of
from .progress import AddedItem, BatchClaim, BatchProgress, CellEntry

_log: Final = logging.getLogger("palaver.planned")
_WAIT: Final = 1.0
"""Seconds between two looks at a batch that is under way."""
_NO_ROOM: Final = 5.0
_TOGETHER: Final = 4
"""Batches that a process goes on with at once."""
_CALLS: Final = 16
"""Runs that are submitted, or read, at once."""
_KEY: Final = "\x1fbatch"
"""The beginning of the idempotency keys of cells. No header can carry one."""
_KEPT: Final = frozenset({"completed", "incomplete"})
"""What a retry of the batch leaves as it is."""


class BatchRunner(Planned[tuple[str, str]]):
    """Looks for batches that need attention, and goes on with them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._progress = backend.store.part(BatchProgress)
        self._batches = asyncio.Semaphore(_TOGETHER)
        self._calls = asyncio.Semaphore(_CALLS)

    async def due(self) -> tuple[list[tuple[str, str]], float | None]:
        return await within_deadline(self._progress.due())

    async def attend(self, due: tuple[str, str]) -> bool:
        async with self._batches:
            try:
                claimed = await within_deadline(self._progress.claim(*due))
                if claimed is None:
                    return False
                await self._go_on(claimed)
                return True
            except Exception as error:
                # It is claimed, and others go on with it once that is over.
                if classify(error).error_class is not ErrorClass.STORAGE:
                    # A ValidationError quotes what did not fit: content.
                    quoting = isinstance(error, ValidationError)
                    _log.error("a batch does not go on: %s", type(error).__name__, exc_info=not quoting)
                return False

    async def _go_on(self, claimed: BatchClaim) -> None:
        with within(Reach(claimed.tenant)):
            looked = await asyncio.gather(*(self._look_at(claimed, each) for each in claimed.flight.values()))
            ended = [each for each in looked if isinstance(each, EndedCell)]
            begun = [each for each in looked if isinstance(each, CellEntry)]
            if claimed.state in ("open", "running"):
                room = claimed.order.head.window - len(claimed.flight) + len(ended)
                if room > 0:
                    first, claimed.next = await within_deadline(self._progress.to_begin(claimed, room))
                    begun += first
            if not await within_deadline(self._progress.advance(claimed, begun=begun, ended=ended)):
                return
            wait = await self._submit_all(claimed)
            await within_deadline(self._progress.advance(claimed, wait=wait))

    async def _look_at(self, claimed: BatchClaim, entry: CellEntry) -> EndedCell | CellEntry | None:
        """Return what became of a cell in flight; None if nothing has."""
        run_id = entry.under_way
        if run_id is None:
            return None
        async with self._calls:
            try:
                run = await within_deadline(self._backend.store.runs.get(run_id))
            except (CorruptRecord, UnknownRun) as error:
                code = "run_not_found" if isinstance(error, UnknownRun) else "corrupt_record"
                return self._ended(claimed, entry, entry.result or {"status": "unknown", "code": code})
            if not run.status.terminal:
                if claimed.state == "cancelling":
                    with suppress(UnknownRun, StateConflict):
                        await cancel(self._backend, run_id, Caller(True, claimed.order.bearer.name), reason="the batch")
                return None
        if entry.score_run_id is not None:
            return self._ended(claimed, entry, {**(entry.result or {}), **_verdict(run)})
        result = _result(run)
        if claimed.order.head.scorer is None or result["status"] != "completed" or claimed.state == "cancelling":
            return self._ended(claimed, entry, result)
        return replace(entry, result={**result, "answer": (run.output or "")[: limit_of("batch_expected")]})

    async def _submit_all(self, claimed: BatchClaim) -> float:
        """Submit what is begun and has no run yet. Return the seconds until the next look."""
        waiting = [each for each in claimed.flight.values() if each.under_way is None]
        if not waiting:
            return _WAIT
        items = await within_deadline(
            self._progress.items(claimed, [claimed.order.item(each.cell) for each in waiting])
        )
        callers = {each.bearer: await self._caller(claimed.tenant, each.bearer) for each in items.values()}
        submitting = (self._submit(claimed, callers, each, items) for each in waiting)
        made = await asyncio.gather(*submitting, return_exceptions=True)
        begun = [each for each in made if isinstance(each, CellEntry)]
        ended = [each for each in made if isinstance(each, EndedCell)]
        await within_deadline(self._progress.advance(claimed, begun=begun, ended=ended))
        for each in made:
            if isinstance(each, BaseException):
                raise each
        return _WAIT if None not in made else _NO_ROOM

    async def _caller(self, tenant: str, bearer: Bearer) -> Caller | Refused:
        try:
            return await caller_now(self._backend, tenant, bearer)
        except Refused as refusal:
            return refusal

    async def _submit(
        self,
        claimed: BatchClaim,
        callers: Mapping[Bearer, Caller | Refused],
        entry: CellEntry,
        items: Mapping[int, AddedItem],
    ) -> EndedCell | CellEntry | None:
        """Submit the run of a cell, or the one that judges it; None if there is no room."""
        if claimed.now - entry.at > self._backend.settings.retention * 500 and entry.run_id is None:
            # An idempotency key is not kept for ever: it is not known any more whether the run was submitted.
            return self._ended(claimed, entry, {"status": "unknown", "code": "unknown_outcome"})
        added = items.get(claimed.order.item(entry.cell))
        if added is None:
            return self._ended(claimed, entry, entry.result or {"status": "unknown", "code": "corrupt_record"})
        item, caller = added.item, callers[added.bearer]
        key = f"{_KEY} {claimed.batch_id} {entry.cell} {entry.attempt}"
        if entry.result is not None:
            key = f"{key} score"
        try:
            submission = _submission(claimed, entry, item)
            if isinstance(caller, Refused):
                raise caller
            async with self._calls:
                voices = {*claimed.retried_by, claimed.order.bearer.name or ""}
                if entry.result is not None and entry.run_id is not None:
                    # The judge is told what they said, by way of the answer.
                    voices |= await within_deadline(self._backend.store.runs.speakers(entry.run_id))
                run_id = (await begin(self._backend, submission, caller, key=key, voices=voices)).run_id
        except NotDurable:
            # The same again finds the run, and waits for its safety.
            return None
        except NoRoom:
            if claimed.state != "cancelling":
                return None
            result = entry.result or {"status": "cancelled"}
        except (Refused, StateConflict, IdempotencyMismatch) as error:
            code = "idempotency_key_reused" if isinstance(error, IdempotencyMismatch) else error.code
            refusal = {"code": code, "output": str(error)[: limit_of("batch_output")]}
            result = {"status": "refused", **refusal} if entry.result is None else {**entry.result, "code": code}
        else:
            return _with_run(entry, item, run_id)
        before = await run_begun_before(self._backend, claimed.tenant, added.bearer, key)
        if before is not None:
            return _with_run(entry, item, before)
        return self._ended(claimed, replace(entry, item=item.id), result)

    def _ended(self, claimed: BatchClaim, entry: CellEntry, result: Mapping[str, Any]) -> EndedCell:
        order, agent = claimed.order, entry.cell % len(claimed.order.head.agents)
        cost, seconds, verdict = result.get("cost_usd", 0.0), result.get("seconds"), result.get("verdict")
        passed = verdict.get("pass") if isinstance(verdict, dict) else None
        fields = {
            "cell": entry.cell,
            "item": entry.item or str(order.item(entry.cell)),
            "agent": order.names[agent],
            "agent_number": agent,
            "repeat": order.repeat(entry.cell),
            "attempt": entry.attempt,
            "run_id": entry.run_id,
            "score_run_id": entry.score_run_id,
            **{name: value for name, value in result.items() if name != "answer"},
        }
        return EndedCell(
            cell=entry.cell,
            result=orjson.dumps(fields),
            agent=agent,
            status=str(result["status"]),
            failed=result["status"] not in _KEPT,
            nanos=None if cost is None else round(cost * NANO),
            input_tokens=int(result.get("input_tokens", 0)),
            output_tokens=int(result.get("output_tokens", 0)),
            ms=0 if seconds is None else round(seconds * 1000),
            passed=None if verdict is None else int(passed is True),
        )


def _with_run(entry: CellEntry, item: BatchItem, run_id: str) -> CellEntry:
    """A cell whose run, or the one that judges it, is submitted."""
    if entry.result is not None:
        return replace(entry, score_run_id=run_id)
    return replace(entry, run_id=run_id, item=item.id)


def _submission(claimed: BatchClaim, entry: CellEntry, item: BatchItem) -> Submission:
    """The body of the run of a cell, or of the one that judges it. Raises Refused (``too_long``)."""
    head = claimed.order.head
    if entry.result is None:
        return submission_of(claimed.batch_id, head, claimed.order.agent(entry.cell), item)
    return scoring_of(claimed.batch_id, head, item, str(entry.result.get("answer", "")))


def _result(run: Run) -> dict[str, Any]:
    times, error = run.times, run.error or run.incomplete_details
    seconds = (times.ended_at - times.started_at).total_seconds() if times.ended_at and times.started_at else None
    failure: Mapping[str, Any] = error or {}
    return {
        "status": run.status.value,
        "stop_reason": None if run.stop_reason is None else run.stop_reason.value,
        "error_class": failure.get("class"),
        "code": failure.get("code"),
        "cost_usd": run.usage.cost_usd,
        "input_tokens": run.usage.input_tokens,
        "output_tokens": run.usage.output_tokens,
        "seconds": seconds,
        "output": None if run.output is None else run.output[: limit_of("batch_output")],
    }


def _verdict(run: Run) -> dict[str, Any]:
    verdict = run.structured_output if run.structured_output is not None else run.output
    if verdict is not None and len(orjson.dumps(verdict)) > limit_of("batch_verdict"):
        count_exceeded("batch_verdict")
        verdict = orjson.dumps(verdict)[: limit_of("batch_verdict")].decode(errors="ignore")
    return {"verdict": verdict}
