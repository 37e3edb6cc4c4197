"""Many runs at once: cancel, retry or delete all that a filter admits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from pydantic import BaseModel

from palaver.delivery.publishing import follow_up
from palaver.errors import (
    ErrorClass,
    NewerVersion,
    NoRoom,
    NotDurable,
    StateConflict,
    UnknownConversation,
    UnknownRun,
    classify,
)
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import CancelMode, Run
from palaver.steps.leases import Settled
from palaver.store.runs.runs import Submitted
from palaver.vocabulary.lifecycle import RunAction
from palaver.vocabulary.limits import limit_of

from .backend import Backend, Caller, durable_reply, within_deadline
from .listing import list_runs

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
    """What to do, and to which runs."""

    action: RunAction
    filter: RunFilter
    older_than: float | None = None
    """Seconds since they were submitted, at least."""
    mode: CancelMode = "now"
    reason: str | None = None
    """Of a cancel, kept on the runs."""
    dry_run: bool = False
    """Only count."""
    limit: int = limit_of("bulk_runs")
    """Runs that the filter admits, at most."""
    cursor: str | None = None


class BulkResult(BaseModel):
    """What was done."""

    matched: int
    """Runs that the filter admits, as far as this request came."""
    done: int
    """Runs that it was done to; 0 in a dry run."""
    skipped: dict[str, int]
    """The others, by the code of the problem; in a dry run as far as their statuses tell."""
    dry_run: bool
    next_cursor: str | None
    """Where to go on; null when every run was looked at."""
    run_ids: list[str]
    """The first 100 that it was done to, or would be."""
    retried_as: dict[str, str]
    """With ``retry``, for each of these the run that goes on with it."""


async def act_on_runs(backend: Backend, wanted: Bulk, caller: Caller) -> BulkResult:
    """Cancel, retry or delete the runs that a filter admits, newest first, for 20 seconds at most: however many it does
    not admit, each page looks at 10,000 runs at most, and none is begun after that.

    Raises:
        Refused: ``invalid_cursor``.
        NotDurable, StoreUnavailable: it was done to some, or not safely.
    """
    admitted = await _admitted(wanted, backend)
    cursor, until = wanted.cursor, time.monotonic() + _TIME
    do = _Doing(wanted, backend, caller)
    while True:
        limit = min(wanted.limit - do.matched, _AT_ONCE)
        page = await list_runs(backend, admitted, limit=limit, cursor=cursor)
        await do.to_all(page.runs)
        cursor = page.next_cursor
        if not cursor or do.matched == wanted.limit or time.monotonic() > until or backend.closing.is_set():
            return do.result(cursor)


async def _admitted(wanted: Bulk, backend: Backend) -> RunFilter:
    if wanted.older_than is None:
        return wanted.filter
    latest = await within_deadline(backend.store.runs.now()) - timedelta(seconds=wanted.older_than)
    return {**wanted.filter, "created_before": min(latest, wanted.filter.get("created_before") or latest)}


@dataclass(slots=True)
class _Doing:
    """What is done to run after run, and what has come of it."""

    wanted: Bulk
    backend: Backend
    caller: Caller
    matched: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    done: list[str] = field(default_factory=list)
    retried_as: dict[str, str] = field(default_factory=dict)

    async def to_all(self, runs: Sequence[Run]) -> None:
        """Do it to those that it can be done to, in order."""
        self.matched += len(runs)
        able = []
        for run in runs:
            if code := _hindrance(self.wanted.action, run):
                self.skipped[code] += 1
            else:
                able.append(run)
        codes = {} if self.wanted.dry_run or not able else await self._to(able)
        self.skipped.update(codes.values())
        self.done += (run.id for run in able if run.id not in codes)

    async def _to(self, runs: Sequence[Run]) -> Mapping[str, str]:
        """The codes of what hindered it, by run."""
        match self.wanted.action:
            case "cancel":
                return await self._cancel(runs)
            case "retry":
                return await self._retry(runs)
            case "delete":
                return await self._delete(runs)

    async def _cancel(self, runs: Sequence[Run]) -> Mapping[str, str]:
        """Newest first, so that no queued run starts because that before it in its conversation ends."""
        wanted, caller, store = self.wanted, self.caller, self.backend.store
        outcomes, unsafe = await durable_reply(
            store.bulk.cancel(runs, mode=wanted.mode, reason=wanted.reason, by=caller.name, acked_ms=caller.waited_ms)
        )
        moved = [each for each in outcomes if isinstance(each, Settled)]
        await within_deadline(follow_up(store, self.backend.publisher.publish_soon, moved))
        return _codes(runs, outcomes, unsafe)

    async def _retry(self, runs: Sequence[Run]) -> Mapping[str, str]:
        outcomes, unsafe = await durable_reply(self.backend.store.bulk.retry(runs, by=self.caller.name))
        made = {run.id: each for run, each in zip(runs, outcomes, strict=True) if isinstance(each, Submitted)}
        self.backend.publisher.publish_soon([delivery for each in made.values() for delivery in each.deliveries])
        self.retried_as |= {run_id: each.run_id for run_id, each in made.items()}
        return _codes(runs, outcomes, unsafe)

    async def _delete(self, runs: Sequence[Run]) -> Mapping[str, str]:
        """Those of one conversation in turn: each goes through its log."""
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
        """What was done by now."""
        shown = self.done[:_SHOWN]
        return BulkResult(
            matched=self.matched,
            done=0 if self.wanted.dry_run else len(self.done),
            skipped=self.skipped,
            dry_run=self.wanted.dry_run,
            next_cursor=cursor,
            run_ids=shown,
            retried_as={run_id: self.retried_as[run_id] for run_id in shown if run_id in self.retried_as},
        )


def _hindrance(action: RunAction, run: Run) -> str:
    """The code with which the store would refuse, as far as the status tells. A run that has ended stays so."""
    if run.status.allows(action) and not (action == "retry" and run.withdrawn):
        return ""
    if not run.status.terminal:
        return "run_active"
    return "run_ended" if action == "cancel" else "nothing_to_retry"


def _codes(runs: Sequence[Run], outcomes: Sequence[object], unsafe: NotDurable | None) -> Mapping[str, str]:
    """The codes of what hindered it, by run. Raises what is about the store, and no run."""
    if unsafe:
        raise unsafe
    return {run.id: _code(run, each) for run, each in zip(runs, outcomes, strict=True) if isinstance(each, Exception)}


def _code(run: Run, error: Exception) -> str:
    """The code that this run alone would have been answered with. Raises an error that is about the store."""
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
