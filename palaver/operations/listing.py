"""Lists of runs."""

from __future__ import annotations

from datetime import datetime

from palaver.errors import Refused
from palaver.operations.backend import Backend, within_deadline
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import RunCount
from palaver.store.reading.listing import RunPage
from palaver.vocabulary.limits import count_exceeded, limit_of


async def count_runs(backend: Backend, after: datetime | None, before: datetime | None) -> RunCount:
    """Count the runs in each status, of those that were submitted between these times."""
    return await within_deadline(backend.store.runs.counts(after, before))


async def list_runs(backend: Backend, admitted: RunFilter, *, limit: int, cursor: str | None) -> RunPage:
    """Return a page of the runs that ``admitted`` lets through, newest first.

    Raises:
        Refused: ``invalid_cursor``.
    """
    if len(cursor or "") > limit_of("cursor"):
        count_exceeded("cursor")
        raise Refused("invalid_cursor", "The cursor is longer than any that a list of runs gave.")
    try:
        return await within_deadline(backend.store.runs.list(admitted, limit=limit, cursor=cursor or None))
    except ValueError:
        if not cursor:
            raise
        raise Refused("invalid_cursor", "The cursor is not one that a list of runs gave.") from None
