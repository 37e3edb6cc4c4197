"""A run's events: as a stream, or as pages."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.events import KnownEvent
from palaver.operations import Backend, Included
from palaver.schemas.fields import DataModel

from ..http.headers import EVENT_STREAM, JSON, LastEventId, Offers
from ..http.queries import FARTHEST, Number, Query
from ..kit.streams import EventStream
from .answers import answer_events
from .dialect import NATIVE, RunId
from .frames import STREAMS, frames, outlet

_MAX_PAGE: Final = 1000


class WatchQuery(Query):
    """A choice of the events to watch."""

    include: Included = Field(default=None, description="`reasoning`: with `reasoning.delta`, what the model thinks.")


class EventsQuery(WatchQuery):
    """The place to start from, and for pages their length."""

    after: Number = Field(default=0, ge=0, le=FARTHEST, description="Only events behind this `seq`.")
    limit: Number = Field(default=100, ge=1, le=_MAX_PAGE, description="Events on a page; a stream has no pages.")


class EventPage(DataModel):
    """A page of events, in order."""

    data: list[KnownEvent]
    next_after: int
    """The ``after`` of the next page."""
    has_more: bool


@NATIVE.route(
    "GET",
    "/v1/runs/{run_id}/events",
    scope="runs:read",
    tag="runs",
    summary="Watch a run",
    answers={
        200: ("The events as they come, one `run.finished`, then the end; or a page of JSON.", EventPage),
        204: ("The stream is over and the client has all of it: a browser stops connecting again.", None),
    },
    problems=("run_not_found", "invalid_cursor", "too_many_watchers"),
    also=STREAMS,
)
async def events(
    backend: Backend,
    run_id: RunId,
    kind: Annotated[str, Offers((EVENT_STREAM, JSON))],
    query: EventsQuery,
    seen: LastEventId,
) -> Response:
    """Token deltas stay for a while after the end; then durable events and the text of each answer, as one delta,
    remain, and `stream.gap` says so."""
    # A browser repeats its first URL, `after` included, and says in the header how far it came since.
    after = query.after if seen is None else seen
    if kind == EVENT_STREAM:
        way = outlet()
        batches = await operations.watch(backend, run_id, after, query.include, way.pass_on)
        if batches is None:
            return Response(status_code=204)
        return EventStream(frames(batches), backend.closing, outlet=way)
    return answer_events(await operations.read_events(backend, run_id, after, query.limit, query.include))
