"""A conversation's events, over all of its runs: as a stream, or as pages."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from palaver import operations
from palaver.events import EventKind, KnownEvent
from palaver.operations import Backend, FeedCursor
from palaver.schemas.fields import DataModel
from palaver.vocabulary.limits import limit_of

from ..http.headers import EVENT_STREAM, JSON, Header, Offers
from ..http.problems import Problem
from ..http.queries import Number
from ..kit.streams import EventStream
from .answers import answer_events
from .dialect import NATIVE, ConversationId
from .events import WatchQuery
from .filters import names_of
from .frames import STREAMS, placed_frames

_PLACE: Final = re.compile(r"([0-9]{1,13})(?:\.([0-9]{1,13}))?")
_PATTERN: Final = {"type": "string", "pattern": r"^[0-9]{1,13}(\.[0-9]{1,13})?$"}
_KEPT: Final = tuple(kind.value for kind in EventKind if kind.durable)


def _place(text: str) -> FeedCursor | None:
    match = _PLACE.fullmatch(text)
    return FeedCursor(int(match[1]), int(match[2] or 0)) if match else None


def _last_event_id(request: Request) -> FeedCursor | None:
    header = request.headers.get("last-event-id")
    place = None if header is None else _place(header)
    if header is not None and place is None:
        raise Problem("invalid_cursor", "Last-Event-ID is not an id of an event of this conversation.")
    return place


def _after(value: object) -> object:
    if isinstance(value, str) and _place(value) is None:
        raise ValueError("must be the id of an event of this conversation, as position or position.seq")
    return value


_Types = Annotated[
    tuple[str, ...],
    BeforeValidator(names_of(_KEPT, "types of events that are kept")),
    WithJsonSchema({"type": "array", "items": {"enum": list(_KEPT)}, "minItems": 1, "maxItems": len(_KEPT)}),
]
LastPlace = Annotated[
    FeedCursor | None,
    Header(
        "Last-Event-ID",
        _last_event_id,
        _PATTERN,
        "Go on behind this event; wins over `after`.",
        problems=("invalid_cursor",),
    ),
]


class ConversationEventsQuery(WatchQuery):
    """The place to start from; and for pages their length, the events on them, and their order."""

    after: Annotated[str, BeforeValidator(_after), WithJsonSchema(_PATTERN)] = Field(
        default="0", description="Only events behind the one of this id, in the order."
    )
    limit: Number = Field(default=100, ge=1, le=limit_of("page_events"), description="Events on a page.")
    types: _Types = Field(default=(), description="On a page, only events of these types.")
    order: Literal["position", "-position"] = Field(
        default="position", description="Of a page; with a minus the newest first, from `after` or the end back."
    )


class ConversationEventPage(DataModel):
    """A page of a conversation's events, in the order that was asked for."""

    data: list[KnownEvent]
    next_after: int
    """The ``after`` of the next page."""
    has_more: bool


@NATIVE.route(
    "GET",
    "/v1/conversations/{conversation_id}/events",
    scope="runs:read",
    tag="conversations",
    summary="Watch a conversation",
    answers={
        200: ("The events of all its runs as they come, until it is deleted; or a page of JSON.", ConversationEventPage)
    },
    problems=("conversation_not_found", "invalid_cursor", "too_many_watchers"),
    also=STREAMS,
)
async def conversation_events(
    backend: Backend,
    conversation_id: ConversationId,
    kind: Annotated[str, Offers((EVENT_STREAM, JSON))],
    query: ConversationEventsQuery,
    seen: LastPlace,
) -> Response:
    """Durable events come exactly once and in order; deltas come of the run that is active, and the text of an answer
    whose run is over as one. An id is a `position`, or a `position` and a `seq`, and stays what it is. A page has only
    durable events."""
    after = seen or _place(query.after) or FeedCursor()
    if kind == EVENT_STREAM:
        batches = await operations.watch_conversation(backend, conversation_id, after, query.include)
        return EventStream(placed_frames(batches), backend.closing)
    page = await operations.read_conversation_events(
        backend,
        conversation_id,
        after=after.position,
        limit=query.limit,
        types=query.types,
        newest_first=query.order == "-position",
    )
    return answer_events(page)
