"""Many runs at once: cancel, retry or delete all that a filter admits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Final

from palaver.delivery.publishing import follow_up
from palaver.errors import (
    ErrorClass,
    NewerVersion,
    NoRoom,
    NotDurable,
    Refused,
    StateConflict,
    UnknownConversation,
    UnknownRun,
    classify,
)
from palaver.late import dataclass
from palaver.operations.admission import admit_retry_of, refuse_other_agents
from palaver.operations.backend import Backend, Caller, durable_reply, within_deadline
from palaver.operations.listing import list_runs
from palaver.schemas.fields import DataModel
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import CancelMode, Retry, Run
from palaver.steps.leases import Settled
from palaver.store.runs.runs import Submitted
from palaver.vocabulary.lifecycle import RunAction
from palaver.vocabulary.limits import limit_of

_log = logging.getLogger("palaver.api")

_TIME: Final = 20.0
"""Seconds after which no further page is begun: a client or a proxy gives up after 30 or 60."""
_AT_ONCE: Final = 100
"""Runs of a page, acted on together: 20 ms of Redis, which reads some 30 of their scripts at a time and serves others
in between."""
_DELETED_AT_ONCE: Final = 20
"""Runs deleted together: a third of the store's connections."""
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Bulk:
    """An action, and the filter of the runs that it is for."""

    action: RunAction
    filter: RunFilter
    older_than: float | None = None
    """Seconds since the runs were submitted, at least."""
    mode: CancelMode = "now"
    reason: str | None = None
    """The reason for a cancel, stored with the runs."""
    dry_run: bool = False
    """True to only count the runs."""
    limit: int = limit_of("bulk_runs")
    """Runs that the filter admits, at most."""
    cursor: str | None = None


class BulkResult(DataModel):
    """The outcome of a request to act on many runs."""

    matched: int
    """Runs that the filter admits, as far as this request came."""
    done: int
    """Runs that were acted on; 0 in a dry run."""
    skipped: dict[str, int]
    """The number of the other runs, by the code of the problem; in a dry run as far as their statuses tell."""
    dry_run: bool
    next_cursor: str | None
    """The cursor to go on from; null when every run was looked at."""
    run_ids: list[str]
    """The first 100 runs that were acted on, or would be."""
    retried_as: dict[str, str]
    """With ``retry``: by each of these ids, the id of the run that goes on with it."""


async def act_on_runs(backend: Backend, bulk: Bulk, caller: Caller) -> BulkResult:
    """Cancel, retry or delete the runs that a filter admits, newest first, for 20 seconds at most: however many it does
    not admit, each page looks at 10,000 runs at most, and none is begun after that.

    Raises:
        Refused: ``invalid_cursor``.
        NotDurable, StoreUnavailable: only some runs were acted on, or not safely.
    """
    admitted = await _admitted(bulk, backend)
    cursor, until = bulk.cursor, time.monotonic() + _TIME
    do = _Doing(bulk, backend, caller)
    while True:
        limit = min(bulk.limit - do.matched, _AT_ONCE)
        page = await list_runs(backend, admitted, limit=limit, cursor=cursor)
        await do.to_all(page.runs)
        cursor = page.next_cursor
        if not cursor or do.matched == bulk.limit or time.monotonic() > until or backend.closing.is_set():
            return do.result(cursor)


async def _admitted(bulk: Bulk, backend: Backend) -> RunFilter:
    if bulk.older_than is None:
        return bulk.filter
    latest = await within_deadline(backend.store.runs.now()) - timedelta(seconds=bulk.older_than)
    return {**bulk.filter, "created_before": min(latest, bulk.filter.get("created_before") or latest)}


@dataclass(slots=True)
class _Doing:
    """The progress of an action on one page of runs after the other."""

    bulk: Bulk
    backend: Backend
    caller: Caller
    matched: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    done: list[str] = field(default_factory=list)
    retried_as: dict[str, str] = field(default_factory=dict)

    async def to_all(self, runs: Sequence[Run]) -> None:
        """Act on the runs that allow it, in order."""
        self.matched += len(runs)
        able = []
        for run in runs:
            if code := _hindrance(self.bulk.action, run) or _barrier(run, self.caller):
                self.skipped[code] += 1
            else:
                able.append(run)
        codes = {} if self.bulk.dry_run or not able else await self._to(able)
        self.skipped.update(codes.values())
        self.done += (run.id for run in able if run.id not in codes)

    async def _to(self, runs: Sequence[Run]) -> Mapping[str, str]:
        """Act on the runs. Return the codes of the problems by run."""
        if self.bulk.action != "cancel":
            # What has ended may have left the store.
            await self.backend.store.memories.bring_back(*(run.id for run in runs))
        match self.bulk.action:
            case "cancel":
                return await self._cancel(runs)
            case "retry":
                return await self._retry(runs)
            case "delete":
                return await self._delete(runs)

    async def _cancel(self, runs: Sequence[Run]) -> Mapping[str, str]:
        """Cancel, newest first: so no queued run starts because the run before it in its conversation ends."""
        bulk, caller, store = self.bulk, self.caller, self.backend.store
        outcomes, unsafe = await durable_reply(
            store.bulk.cancel(runs, mode=bulk.mode, reason=bulk.reason, by=caller.identity, acked_ms=caller.waited_ms)
        )
        moved = [outcome for outcome in outcomes if isinstance(outcome, Settled)]
        await within_deadline(follow_up(store, self.backend.publisher.publish_soon, moved))
        return _codes(runs, outcomes, unsafe)

    async def _retry(self, runs: Sequence[Run]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        retries: list[tuple[Run, Retry]] = []
        for run in runs:
            try:
                retries.append((run, await admit_retry_of(run, self.backend, self.caller)))
            except Refused as refusal:
                refused[run.id] = refusal.code
        runs = [run for run, _ in retries]
        outcomes, unsafe = await durable_reply(self.backend.store.bulk.retry(retries, by=self.caller.identity))
        paired = zip(runs, outcomes, strict=True)
        made = {run.id: outcome for run, outcome in paired if isinstance(outcome, Submitted)}
        self.backend.publisher.publish_soon([delivery for new in made.values() for delivery in new.deliveries])
        self.retried_as |= {run_id: new.run_id for run_id, new in made.items()}
        return {**refused, **_codes(runs, outcomes, unsafe)}

    async def _delete(self, runs: Sequence[Run]) -> Mapping[str, str]:
        """Delete runs, those of one conversation in turn: each deletion goes through its log."""
        codes: dict[str, str] = {}
        turns = {run.conversation_id: asyncio.Lock() for run in runs}
        room = asyncio.Semaphore(_DELETED_AT_ONCE)

        async def delete(run: Run) -> None:
            async with turns[run.conversation_id], room:
                try:
                    await within_deadline(self.backend.store.control.delete_run(run.id))
                except Exception as error:
                    codes[run.id] = _code(run, error)

        ends = await asyncio.gather(*map(delete, runs), return_exceptions=True)
        for error in filter(None, ends):
            raise error
        return codes

    def result(self, cursor: str | None) -> BulkResult:
        """Return the outcome so far."""
        shown = self.done[:_SHOWN]
        return BulkResult(
            matched=self.matched,
            done=0 if self.bulk.dry_run else len(self.done),
            skipped=self.skipped,
            dry_run=self.bulk.dry_run,
            next_cursor=cursor,
            run_ids=shown,
            retried_as={run_id: self.retried_as[run_id] for run_id in shown if run_id in self.retried_as},
        )


def _hindrance(action: RunAction, run: Run) -> str:
    """Return the code with which the store would refuse, as far as the status tells; empty if it would not. A run that
    has ended stays so."""
    if run.status.allows(action) and not (action == "retry" and run.withdrawn):
        return ""
    if not run.status.terminal:
        return "run_active"
    return "run_ended" if action == "cancel" else "nothing_to_retry"


def _barrier(run: Run, caller: Caller) -> str:
    """Return the code with which the caller's key is refused for the agent of a run; empty if it is not."""
    try:
        refuse_other_agents(run.agent, caller)
    except Refused as refusal:
        return refusal.code
    return ""


def _codes(runs: Sequence[Run], outcomes: Sequence[object], unsafe: NotDurable | None) -> Mapping[str, str]:
    """Return the codes of the problems by run. Raises an error that is about the store and not about a run."""
    if unsafe:
        raise unsafe
    return {
        run.id: _code(run, outcome)
        for run, outcome in zip(runs, outcomes, strict=True)
        if isinstance(outcome, Exception)
    }


def _code(run: Run, error: Exception) -> str:
    """Return the code that a request for this run alone would have been answered with. Raises an error that is about
    the store."""
    match error:
        case StateConflict() | NoRoom():
            return error.code
        case UnknownRun() | UnknownConversation():
            return "run_not_found"
        case NewerVersion():
            return "unavailable"
    if classify(error).error_class is ErrorClass.STORAGE:
        raise error
    _log.error("unforeseen error with run %s, one of many", run.id, exc_info=error)
    return "internal"
