"""Many runs at once: cancel, retry or delete all that a filter admits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.errors import FieldError
from palaver.operations import Backend, Bulk, BulkResult, Caller
from palaver.operations.admission import refuse
from palaver.schemas.fields import AtMost, Strict
from palaver.schemas.filters import OLDEST
from palaver.schemas.models import CancelMode
from palaver.vocabulary.lifecycle import RunAction
from palaver.vocabulary.limits import limit_of

from ..http.answers import answer
from ..http.audit import detail
from .dialect import NATIVE
from .filters import Filters


class BulkFilter(Strict, Filters):
    """A selection of runs: those that all of its fields admit."""

    older_than: float | None = Field(
        default=None, gt=0, le=OLDEST, description="Only runs submitted longer than so many seconds ago."
    )

    @property
    def names_nothing(self) -> bool:
        """True if it admits every run there is."""
        return self == BulkFilter()


class BulkAction(Strict):
    """An operation, and the runs that it is for."""

    action: RunAction
    filter: BulkFilter = BulkFilter()
    all: bool = False
    """Every run there is, in the place of a filter."""
    mode: CancelMode | None = None
    """With ``cancel``, as there; default ``now``."""
    reason: Annotated[str, AtMost("reason")] | None = None
    """With ``cancel``: the reason, for the records of the runs."""
    dry_run: bool = False
    """Only count."""
    limit: int = Field(default=limit_of("bulk_runs"), ge=1, le=limit_of("bulk_runs"))
    """Runs that the filter admits, at most, in this request."""
    cursor: str | None = None
    """``next_cursor`` of the request before: go on there."""

    def as_bulk(self) -> Bulk:
        """Return the same as a request of the use case."""
        return Bulk(
            action=self.action,
            filter=self.filter.as_filter(),
            older_than=self.filter.older_than,
            mode=self.mode or "now",
            reason=self.reason,
            dry_run=self.dry_run,
            limit=self.limit,
            cursor=self.cursor,
        )


@NATIVE.route(
    "POST",
    "/v1/runs/actions",
    scope="runs:act",
    tag="runs",
    summary="Cancel, retry or delete many runs",
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
)
async def act_on_runs(backend: Backend, caller: Caller, body: BulkAction) -> Response:
    """Newest first, for 20 seconds at most: repeat it with `next_cursor` until that is null."""
    refuse(_faults(body))
    detail(action=body.action, dry_run=body.dry_run)
    result = await operations.act_on_runs(backend, body.as_bulk(), caller)
    detail(count=result.done, matched=result.matched)
    return answer(result)


def _faults(body: BulkAction) -> Iterator[FieldError]:
    if not body.all and body.filter.names_nothing:
        why = f'admits every run: say which to {body.action}, or "all": true in its place'
        yield FieldError("/filter", "missing", why)
    if body.all and not body.filter.names_nothing:
        yield FieldError("/all", "value_error", "means every run: leave the filter out, or this")
    if body.action != "cancel":
        for name in ("mode", "reason"):
            if getattr(body, name) is not None:
                yield FieldError(f"/{name}", "value_error", "goes with the action cancel only")
