"""What was said and done in a conversation: search, count, look at one event."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Literal

import orjson
from pydantic import Field
from starlette.responses import Response

from palaver.errors import Refused
from palaver.limits import most
from palaver.models import AgentSpec

from .. import operations
from ..answers import answer_json
from ..operations import Backend
from ..queries import Number, Query
from .answers import Count, EventsFound, OpenHandsEvent, plain
from .dialect import OPENHANDS, ConversationUuid, EventUuid
from .events import Event
from .ids import FIRST, event_id, place_of
from .looking import Seen, look, number_of

_PLACE: Final = "/openhands/api/conversations/{conversation}/events"
_BY_INDEX: Final = 2048
"""Added to the number of an event in its entry, in the name of its place: pages begin there."""


class EventFilter(Query):
    """Which events."""

    kind: str | None = Field(default=None, max_length=100, description="The name of a kind, as in `kind`.")
    source: str | None = Field(default=None, max_length=100)
    body: str | None = Field(default=None, max_length=1000, description="A text in a message.")
    timestamp__gte: str | None = Field(default=None, max_length=40)
    timestamp__lt: str | None = Field(default=None, max_length=40)

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

    page_id: str | None = Field(default=None, max_length=100, description="`next_page_id` of the page before.")
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
    seen = await look(backend, number_of(conversation))
    found: deque[tuple[str, bytes]] = deque()
    size, newest_first, next_page = 0, query.sort_order == "TIMESTAMP_DESC", None
    start, end = (None, query.page_id) if newest_first else (query.page_id, None)
    async with aclosing(_events(backend, seen, start, end)) as events:
        async for place, event in events:
            if not query.admits(event):
                continue
            found.append((place, orjson.dumps(event)))
            size += len(found[-1][1])
            while len(found) > query.limit or (len(found) > 1 and size > most("answer_bytes")):
                next_page, shown = found.popleft() if newest_first else found.pop()
                size -= len(shown)
            if next_page is not None and not newest_first:
                break
    pieces = [shown for _, shown in (reversed(found) if newest_first else found)]
    return answer_json(b'{"items":[%b],"next_page_id":%b}' % (b",".join(pieces), orjson.dumps(next_page)))


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
    seen = await look(backend, number_of(conversation))
    async with aclosing(_events(backend, seen)) as events:
        return plain(sum([query.admits(event) async for _, event in events]))


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
    seen = await look(backend, number_of(conversation))
    async with aclosing(_events(backend, seen, event)) as events:
        async for _, each in events:
            if each["id"] == event:
                return plain(each)
    raise Refused("not_found", "There is no such event in the conversation.")


async def _events(
    backend: Backend, seen: Seen, first: str | None = None, last: str | None = None
) -> AsyncGenerator[tuple[str, Event], None]:
    """The events from the one of a name to the one of another, each with the name of its place. A name that the
    conversation does not have means its beginning, or its end."""
    begin, end = _place(seen, first), _place(seen, last)
    position = begin[0] if begin else FIRST
    if seen.conversation.agent is not None and position == FIRST:
        prompt = await _system_prompt(backend, seen, seen.conversation.agent)
        yield prompt["id"], prompt
    async with aclosing(operations.read_log(backend, seen.id, after=max(position - 1, 0))) as pages:
        async for page in pages:
            for entry in page:
                for index, event in enumerate(seen.writer.of(entry)):
                    here = (entry.position, index)
                    if begin and here < begin and event["id"] != first:
                        continue
                    begin = None
                    if end and here > end:
                        return
                    yield event_id(seen.number, entry.position, _BY_INDEX + index), event


async def _system_prompt(backend: Backend, seen: Seen, agent: AgentSpec) -> Event:
    """Clients sort by time, and a fork is younger than the log that it begins with."""
    at = seen.conversation.created_at
    async with aclosing(operations.read_log(backend, seen.id)) as pages:
        async for page in pages:
            at = min(at, page[0].at)
            break
    return seen.writer.system_prompt(at, agent.instructions)


def _place(seen: Seen, name: str | None) -> tuple[int, int] | None:
    """The position that a name means, and how many events of its entry come before."""
    place = place_of(seen.number, name) if name is not None else None
    return (place[0], place[1] - _BY_INDEX if place[1] >= _BY_INDEX else _BY_INDEX) if place else None


def _said(event: Event) -> str:
    parts = event.get("llm_message", {}).get("content", ())
    return "\n".join(part.get("text", "") for part in parts)
