"""Many runs at once: cancel, retry or delete all that a filter admits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from api.answers import answer
from api.backend import Backend, backend, prompt
from api.bodies import read_body
from api.door import refuse
from api.edge import asked_by, ms_since_arrival
from api.headers import JSON, accepted
from api.listing import Filters, page_of_runs
from api.openapi import operation
from api.problems import Fault
from api.queries import Query, read_query
from palaver.errors import NoRoom, StateConflict, UnknownRun
from palaver.fields import AtMost, Strict
from palaver.filters import RunFilter
from palaver.lifecycle import RunAction
from palaver.limits import most
from palaver.models import CancelMode, Retry, Run

router = APIRouter(tags=["runs"])

_TIME: Final = 20.0
"""Seconds after which no further page is begun: a client or a proxy gives up after 30 or 60."""
_AT_ONCE: Final = 20
"""Runs of a page, acted on together: a third of the store's connections."""
_SHOWN: Final = 100


class BulkFilter(Strict, Filters):
    """Which runs: those that everything given here admits."""

    older_than: float | None = Field(
        default=None, gt=0, le=10 * 366 * 86400, description="Only runs submitted longer than so many seconds ago."
    )

    @property
    def names_nothing(self) -> bool:
        """Whether it admits every run there is."""
        return self == BulkFilter()


class BulkAction(Strict):
    """What to do, and to which runs."""

    action: RunAction
    filter: BulkFilter = BulkFilter()
    all: bool = False
    """Every run there is, in the place of a filter."""
    mode: CancelMode | None = None
    """With ``cancel``, as there; default ``now``."""
    reason: Annotated[str, AtMost("reason")] | None = None
    """With ``cancel``: kept on the runs."""
    dry_run: bool = False
    """Only count."""
    limit: int = Field(default=most("bulk_runs"), ge=1, le=most("bulk_runs"))
    """Runs to look at in this request, at most."""
    cursor: str | None = None
    """``next_cursor`` of the request before: go on there."""


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


@router.post(
    "/v1/runs/actions",
    summary="Cancel, retry or delete many runs",
    openapi_extra=operation(
        body=BulkAction,
        examples={
            "what would be cancelled": {"action": "cancel", "filter": {"tag": "nightly"}, "dry_run": True},
            "retry after an outage": {
                "action": "retry",
                "filter": {"status": ["failed"], "error_class": "provider_error", "older_than": 600},
            },
            "forget": {"action": "delete", "filter": {"agent": "demo", "created_before": "2026-01-01T00:00:00Z"}},
        },
        answers={200: ("Done, as far as `next_cursor` says.", BulkResult)},
        problems=("invalid_cursor", "not_durable"),
    ),
)
async def act_on_runs(request: Request) -> Response:
    """Newest first, for 20 seconds at most: repeat it with `next_cursor` until that is null."""
    accepted(request, JSON)
    read_query(request, Query)
    wanted = await read_body(request, BulkAction)
    refuse(_faults(wanted))
    here = backend(request)
    admitted = await _admitted(wanted.filter, here)
    cursor, until = wanted.cursor, time.monotonic() + _TIME
    do = _Doing(wanted, here, request)
    codes: dict[str, str] = {}
    while True:
        limit = min(wanted.limit - len(codes), _AT_ONCE)
        page = await page_of_runs(here, admitted, limit=limit, cursor=cursor)
        codes |= await do.to_all(page.runs)
        cursor = page.next_cursor
        if not cursor or len(codes) == wanted.limit or time.monotonic() > until or here.closing.is_set():
            break
    able = [run_id for run_id, code in codes.items() if not code]
    return answer(
        BulkResult(
            matched=len(codes),
            done=0 if wanted.dry_run else len(able),
            skipped=Counter(filter(None, codes.values())),
            dry_run=wanted.dry_run,
            next_cursor=cursor,
            run_ids=able[:_SHOWN],
        )
    )


def _faults(wanted: BulkAction) -> Iterator[Fault]:
    if not wanted.all and wanted.filter.names_nothing:
        why = f'admits every run: say which to {wanted.action}, or "all": true in its place'
        yield Fault("/filter", "missing", why)
    if wanted.all and not wanted.filter.names_nothing:
        yield Fault("/all", "value_error", "means every run: leave the filter out, or this")
    if wanted.action != "cancel":
        for name in ("mode", "reason"):
            if getattr(wanted, name) is not None:
                yield Fault(f"/{name}", "value_error", "goes with the action cancel only")


async def _admitted(wanted: BulkFilter, here: Backend) -> RunFilter:
    if wanted.older_than is None:
        return wanted.as_filter()
    latest = await prompt(here.store.runs.now()) - timedelta(seconds=wanted.older_than)
    return wanted.as_filter(created_before=min(latest, wanted.created_before or latest))


@dataclass(frozen=True, slots=True)
class _Doing:
    """What is done to run after run."""

    wanted: BulkAction
    here: Backend
    request: Request

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
        store = self.here.store
        try:
            match self.wanted.action:
                case "cancel":
                    mode, by, waited = self.wanted.mode or "now", asked_by(self.request), ms_since_arrival(self.request)
                    settled = await prompt(
                        store.runs.cancel(run_id, mode=mode, reason=self.wanted.reason, by=by, acked_ms=waited)
                    )
                    await self.here.follow_up(settled)
                case "retry":
                    made = await prompt(store.control.retry(run_id, Retry()))
                    self.here.publisher.publish_soon(made.deliveries)
                case "delete":
                    await prompt(store.control.delete_run(run_id))
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
