"""What was said and done in a conversation: search, count, look at one event."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC
from typing import Annotated, Final, Literal

import orjson
from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.responses import Response

from palaver.errors import Refused
from palaver.vocabulary.limits import most

from ..answers import answer_json
from ..operations import Backend
from ..queries import AnyQuery, Number, moment
from .answers import Count, EventsFound, OpenHandsEvent, plain
from .dialect import OPENHANDS, ConversationUuid, EventUuid
from .events import Event, timestamp
from .ids import place_of
from .looking import look
from .placed import find_event, placed_events

_PLACE: Final = "/openhands/api/conversations/{conversation}/events"


def _as_told(given: object) -> object:
    """A time in the form that events have it in: so the texts are compared. Without a zone it is of theirs."""
    if not isinstance(given, str):
        return given
    at = moment(given)
    try:
        return timestamp(at if at.tzinfo else at.replace(tzinfo=UTC))
    except OverflowError:
        raise ValueError("must be of the years 1 to 9999 in UTC") from None


_Moment = Annotated[str, BeforeValidator(_as_told), WithJsonSchema({"type": "string", "format": "date-time"})]


class EventFilter(AnyQuery):
    """Which events."""

    kind: str | None = Field(default=None, max_length=100, description="The name of a kind, as in `kind`.")
    source: str | None = Field(default=None, max_length=100)
    body: str | None = Field(default=None, max_length=1000, description="A text in a message.")
    timestamp__gte: _Moment | None = Field(default=None, description="Only at this time or later.")
    timestamp__lt: _Moment | None = Field(default=None, description="Only before this time.")

    def admits(self, event: Event) -> bool:
        """Whether an event is meant."""
        return (
            self.kind in (None, event["kind"])
            and self.source in (None, event["source"])
            and (self.body is None or self.body.casefold() in _said(event).casefold())
            and (self.timestamp__gte is None or event["timestamp"] >= self.timestamp__gte)
            and (self.timestamp__lt is None or event["timestamp"] < self.timestamp__lt)
        )


class EventSearch(EventFilter):
    """Which events, and how many."""

    page_id: str | None = Field(default=None, description="`next_page_id` of the page before.")
    limit: Number = Field(default=100, ge=1, le=100, description="Events on a page.")
    sort_order: Literal["TIMESTAMP", "TIMESTAMP_DESC"] = "TIMESTAMP"


@OPENHANDS.route(
    "GET",
    f"{_PLACE}/search",
    tag="openhands",
    summary="Search events",
    answers={200: ("A page.", EventsFound)},
    problems=("conversation_not_found",),
)
async def search_events(backend: Backend, conversation: ConversationUuid, query: EventSearch) -> Response:
    """Events in the order in which they happened, or the other way round. A page begins with the one that it names."""
    seen = await look(backend, conversation)
    found, size, next_page = list[bytes](), 0, None
    newest_first = query.sort_order == "TIMESTAMP_DESC"
    async with aclosing(placed_events(backend, seen, query.page_id, newest_first=newest_first)) as events:
        async for _, place, event in events:
            if not query.admits(event):
                continue
            shown = orjson.dumps(event)
            size += len(shown)
            if len(found) == query.limit or (found and size > most("answer_bytes")):
                # An action's name does not tell its place, and would have to be looked for.
                next_page = event["id"] if place_of(seen.number, event["id"]) else place
                break
            found.append(shown)
    return answer_json(b'{"items":[%b],"next_page_id":%b}' % (b",".join(found), orjson.dumps(next_page)))


@OPENHANDS.route(
    "GET",
    f"{_PLACE}/count",
    tag="openhands",
    summary="Count events",
    answers={200: ("How many there are.", Count)},
    problems=("conversation_not_found",),
)
async def count_events(backend: Backend, conversation: ConversationUuid, query: EventFilter) -> Response:
    """A number."""
    seen = await look(backend, conversation)
    async with aclosing(placed_events(backend, seen)) as events:
        return plain(sum([query.admits(each.event) async for each in events]))


@OPENHANDS.route(
    "GET",
    f"{_PLACE}/{{event}}",
    tag="openhands",
    summary="Look at an event",
    answers={200: ("The event.", OpenHandsEvent)},
    problems=("conversation_not_found", "not_found"),
)
async def one_event(backend: Backend, conversation: ConversationUuid, event: EventUuid) -> Response:
    """An event by its id."""
    seen = await look(backend, conversation)
    found = await find_event(backend, seen, event)
    if found is None:
        raise Refused("not_found", "There is no such event in the conversation.")
    return plain(found.event)


def _said(event: Event) -> str:
    parts = event.get("llm_message", {}).get("content", ())
    return "\n".join(part.get("text", "") for part in parts)
