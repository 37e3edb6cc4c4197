"""A run's events: as a stream, or as pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from api.answers import answer_json
from api.backend import backend, prompt
from api.headers import EVENT_STREAM, JSON, accepted, last_event_id
from api.openapi import operation
from api.problems import Problem
from api.queries import FARTHEST, Number, Query, read_query
from api.sse import EventStream, frames
from api.waiting import admit_watcher
from palaver.events import KnownEvent
from palaver.store.events import StoredEvent

router = APIRouter(tags=["runs"])

_MAX_PAGE: Final = 1000


class EventsQuery(Query):
    """Where to start, and for pages how many."""

    after: Number = Field(default=0, ge=0, le=FARTHEST, description="Only events behind this `seq`.")
    limit: Number = Field(default=100, ge=1, le=_MAX_PAGE, description="Events on a page; a stream has no pages.")


class EventPage(BaseModel):
    """A page of events, in order."""

    data: list[KnownEvent]
    next_after: int
    """The ``after`` of the next page."""
    has_more: bool


@router.get(
    "/v1/runs/{run_id}/events",
    summary="Watch a run",
    openapi_extra=operation(
        path={"run_id": "The run's id."},
        query=EventsQuery,
        headers=("Last-Event-ID",),
        answers={
            200: ("The events as they come, one `run.finished`, then the end; or a page of JSON.", EventPage),
            204: ("The stream is over and the client has all of it: a browser stops connecting again.", None),
        },
        problems=("run_not_found", "invalid_cursor", "too_many_watchers"),
        streams=True,
    ),
)
async def events(request: Request) -> Response:
    """Token deltas stay for a while after the end; then durable events remain, and `stream.gap` says so."""
    kind = accepted(request, EVENT_STREAM, JSON)
    query = read_query(request, EventsQuery)
    # A browser repeats its first URL, `after` included, and says in the header how far it came since.
    seen = last_event_id(request)
    after = query.after if seen is None else seen
    here = backend(request)
    run = await here.run(request.path_params["run_id"])
    if after > run.last_event_id:
        raise Problem("invalid_cursor", f"The run has {run.last_event_id} events so far.", run_id=run.id)
    if kind == EVENT_STREAM:
        if run.status.terminal and after == run.last_event_id:
            return Response(status_code=204)
        admit_watcher(here)
        return EventStream(frames(here.store.feeds, run.id, after), here.closing)
    page = await prompt(here.store.feeds.page(run.id, after=after, limit=query.limit))
    reached = page[-1].seq if page else after
    return answer_json(_page(page, reached, has_more=bool(page) and reached < run.last_event_id))


def _page(events: Sequence[StoredEvent], next_after: int, *, has_more: bool) -> bytes:
    """An `EventPage`. The events are passed on as they are stored."""
    rest = orjson.dumps({"next_after": next_after, "has_more": has_more})
    return b'{"data":[%b],%b' % (b",".join(event.to_json() for event in events), rest[1:])
