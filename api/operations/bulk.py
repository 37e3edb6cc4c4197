"""Many runs at once: cancel, retry or delete all that a filter admits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pydantic import BaseModel

from palaver.errors import NoRoom, StateConflict, UnknownRun
from palaver.filters import RunFilter
from palaver.lifecycle import RunAction
from palaver.limits import most
from palaver.models import CancelMode, Retry, Run

from .backend import Backend, Caller, within_deadline
from .listing import list_runs

_TIME: Final = 20.0
"""Seconds after which no further page is begun: a client or a proxy gives up after 30 or 60."""
_AT_ONCE: Final = 20
"""Runs of a page, acted on together: a third of the store's connections."""
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
    limit: int = most("bulk_runs")
    """Runs to look at, at most."""
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


async def act_on_runs(backend: Backend, wanted: Bulk, caller: Caller) -> BulkResult:
    """Cancel or retry the runs that a filter names, newest first, for 20 seconds at most.

    Raises:
        Refused: ``invalid_cursor``.
        NotDurable, StoreUnavailable: it was done to some, or not safely.
    """
    admitted = await _admitted(wanted, backend)
    cursor, until = wanted.cursor, time.monotonic() + _TIME
    do = _Doing(wanted, backend, caller)
    codes: dict[str, str] = {}
    while True:
        limit = min(wanted.limit - len(codes), _AT_ONCE)
        page = await list_runs(backend, admitted, limit=limit, cursor=cursor)
        codes |= await do.to_all(page.runs)
        cursor = page.next_cursor
        if not cursor or len(codes) == wanted.limit or time.monotonic() > until or backend.closing.is_set():
            break
    able = [run_id for run_id, code in codes.items() if not code]
    return BulkResult(
        matched=len(codes),
        done=0 if wanted.dry_run else len(able),
        skipped=Counter(filter(None, codes.values())),
        dry_run=wanted.dry_run,
        next_cursor=cursor,
        run_ids=able[:_SHOWN],
    )


async def _admitted(wanted: Bulk, backend: Backend) -> RunFilter:
    if wanted.older_than is None:
        return wanted.filter
    latest = await within_deadline(backend.store.runs.now()) - timedelta(seconds=wanted.older_than)
    return {**wanted.filter, "created_before": min(latest, wanted.filter.get("created_before") or latest)}


@dataclass(frozen=True, slots=True)
class _Doing:
    """What is done to run after run."""

    wanted: Bulk
    backend: Backend
    caller: Caller

    async def to_all(self, runs: Sequence[Run]) -> dict[str, str]:
        """Each run with the code of what hindered it, ``""`` for nothing.

        Those of one conversation come in turn, newest first: no queued one starts because that before it ends.
        """
        codes = {run.id: "" for run in runs}
        conversations: dict[str, list[Run]] = {}
        for run in runs:
            conversations.setdefault(run.conversation_id, []).append(run)

        async def in_turn(several: list[Run]) -> None:
            for run in several:
                codes[run.id] = _hindrance(self.wanted.action, run) or await self._to(run.id)

        ends = await asyncio.gather(*map(in_turn, conversations.values()), return_exceptions=True)
        for error in filter(None, ends):
            raise error
        return codes

    async def _to(self, run_id: str) -> str:
        if self.wanted.dry_run:
            return ""
        store, wanted = self.backend.store, self.wanted
        try:
            match wanted.action:
                case "cancel":
                    by, waited = self.caller.name, self.caller.waited_ms
                    settled = await within_deadline(
                        store.runs.cancel(run_id, mode=wanted.mode, reason=wanted.reason, by=by, acked_ms=waited)
                    )
                    await self.backend.follow_up(settled)
                case "retry":
                    made = await within_deadline(store.control.retry(run_id, Retry(), by=self.caller.name))
                    self.backend.publisher.publish_soon(made.deliveries)
                case "delete":
                    await within_deadline(store.control.delete_run(run_id))
        except (StateConflict, NoRoom) as refusal:
            return refusal.code
        except UnknownRun:
            return "run_not_found"
        return ""


def _hindrance(action: RunAction, run: Run) -> str:
    """The code with which the store would refuse, as far as the status tells. A run that has ended stays so."""
    if run.status.allows(action) and not (action == "retry" and run.withdrawn):
        return ""
    if not run.status.terminal:
        return "run_active"
    return "run_ended" if action == "cancel" else "nothing_to_retry"
