"""The events of a conversation: in order, search, count, look at one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, NamedTuple
from uuid import UUID

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from starlette.responses import Response

from api.http.answers import answer_json
from api.http.queries import AnyQuery, Number, moment
from palaver import operations
from palaver.errors import FieldError, Refused
from palaver.operations import Backend
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.limits import limit_of

from .content import agents_tool, clients_tool
from .dialect import OPENHANDS, ConversationUuid, EventUuid
from .events import Event, timestamp
from .ids import FIRST, event_id, place_of
from .snapshot import Snapshot, load_snapshot
from .state import Generation
from .wire import Count, EventSearchPage, OpenHandsEvent, plain

_BY_INDEX: Final = 2048
"""Added to the number of an event in its entry, in the name of its place."""


class Placed(NamedTuple):
    """An event, and its place."""

    position: int
    """The position in the log of the entry that it belongs to."""
    name: str
    """The name of its place: events of calls have other ids, but a page may begin at any event."""
    event: Event


async def placed_events(
    backend: Backend, snapshot: Snapshot, first: str | None = None, *, newest_first: bool = False
) -> AsyncGenerator[Placed, None]:
    """Yield the events from the one with the name ``first``, or at the place of that name, to the end; with
    ``newest_first`` back to the beginning. A name that the conversation does not have means all events."""
    named = place_of(snapshot.number, first) if first is not None else None
    if first is not None and named is None and (action := await find_event(backend, snapshot, first)) is not None:
        first = action.name
        named = place_of(snapshot.number, first)
    position, begun = named[0] if named and named[0] <= snapshot.conversation.entries else None, False
    if not newest_first and position in (None, FIRST):
        for prompt in await _system_prompt(backend, snapshot):
            yield prompt
    after = 0 if position is None else position + 1 if newest_first else max(position - 1, 0)
    async with aclosing(operations.read_log(backend, snapshot.id, after=after, newest_first=newest_first)) as pages:
        async for page in pages:
            for entry in page:
                events = list(enumerate(snapshot.writer.of(entry)))
                for index, event in reversed(events) if newest_first else events:
                    name = event_id(snapshot.number, entry.position, _BY_INDEX + index)
                    if not begun and entry.position == position and first not in (name, event["id"]):
                        continue
                    begun = True
                    yield Placed(entry.position, name, event)
    if newest_first:
        for prompt in await _system_prompt(backend, snapshot):
            yield prompt


async def find_event(backend: Backend, snapshot: Snapshot, id: str) -> Placed | None:
    """Return the event of an id; None if there is none. The id of a call does not tell its place: it is looked for from
    the newest back."""
    has_place = place_of(snapshot.number, id) is not None
    if not has_place and not _may_be_an_event(id):
        return None
    async with aclosing(placed_events(backend, snapshot, id if has_place else None, newest_first=True)) as events:
        async for placed in events:
            if placed.event["id"] == id:
                return placed
            if has_place:
                break
    return None


async def find_position(backend: Backend, snapshot: Snapshot, name: str | None, pointer: str) -> int | None:
    """Return the position of the entry that an event belongs to; None without a name.

    Raises:
        Refused: the conversation has no such event. ``pointer`` is the place of the name in the request.
    """
    if name is None:
        return None
    placed = await find_event(backend, snapshot, name)
    if placed is None:
        raise Refused.of_faults([FieldError(pointer, "unknown_position", "is no event of this conversation")])
    return placed.position


def _may_be_an_event(id: str) -> bool:
    """Tell whether an id can be that of an action, which has to be looked for."""
    try:
        return UUID(id).version == 5
    except ValueError:
        return False


async def _system_prompt(backend: Backend, snapshot: Snapshot) -> list[Placed]:
    """Return the prompt, which stands before the log, if there is an agent. Clients sort by time, and a fork is younger
    than the log with which it begins: so the prompt has the time of the first entry, if that is earlier."""
    if snapshot.conversation.agent is None:
        return []
    at = snapshot.conversation.created_at
    async with aclosing(operations.read_log(backend, snapshot.id)) as pages:
        async for page in pages:
            at = min(at, page[0].at)
            break
    prompt = await system_prompt(backend, snapshot, snapshot.conversation.agent, at)
    return [Placed(FIRST, prompt["id"], prompt)]


async def system_prompt(backend: Backend, snapshot: Snapshot, agent: AgentSpec, at: datetime) -> Event:
    """Return the event with the prompt of an agent, and its tools as workers have them now."""
    known = await operations.known_tools(backend)
    newer = snapshot.state.generation is Generation.NEWER
    tools = [agents_tool(name, next(iter(known.get(name, ())), None)) for name in agent.tools]
    tools += [clients_tool(tool, newer=newer) for tool in snapshot.client_tools]
    return snapshot.writer.system_prompt(at, agent.instructions, tools)


_PLACE: Final = "/openhands/api/conversations/{conversation}/events"


def _as_in_events(value: object) -> object:
    """Return a time in the form of the times of events: so the texts are compared. Without a zone it is in UTC, as
    theirs."""
    if not isinstance(value, str):
        return value
    at = moment(value)
    try:
        return timestamp(at if at.tzinfo else at.replace(tzinfo=UTC))
    except OverflowError:
        raise ValueError("must be of the years 1 to 9999 in UTC") from None


_Moment = Annotated[str, BeforeValidator(_as_in_events), WithJsonSchema({"type": "string", "format": "date-time"})]


def _kind_in(name: str) -> str:
    """Return the kind that a name or the path of a class ends with: OpenHands' own server compares paths."""
    return name.rpartition(".")[2]


class EventFilter(AnyQuery):
    """A filter of events."""

    kind: Annotated[str, AfterValidator(_kind_in)] | None = Field(
        default=None, max_length=200, description="The name of a kind, as in `kind`, or the path of its class."
    )
    source: str | None = Field(default=None, max_length=100)
    body: str | None = Field(default=None, max_length=1000, description="A text in a message.")
    timestamp__gte: _Moment | None = Field(default=None, description="Only at this time or later.")
    timestamp__lt: _Moment | None = Field(default=None, description="Only before this time.")

    def admits(self, event: Event) -> bool:
        """Tell whether an event passes."""
        return (
            self.kind in (None, event["kind"])
            and self.source in (None, event["source"])
            and (self.body is None or self.body.casefold() in _text_of(event).casefold())
            and (self.timestamp__gte is None or event["timestamp"] >= self.timestamp__gte)
            and (self.timestamp__lt is None or event["timestamp"] < self.timestamp__lt)
        )


class EventSearch(EventFilter):
    """A filter of events, and a page of them."""

    page_id: str | None = Field(default=None, description="`next_page_id` of the page before.")
    limit: Number = Field(default=100, ge=1, le=100, description="Events on a page.")
    sort_order: Literal["TIMESTAMP", "TIMESTAMP_DESC"] = "TIMESTAMP"


@OPENHANDS.route(
    "GET",
    f"{_PLACE}/search",
    scope="runs:read",
    tag="openhands",
    summary="Search events",
    answers={200: ("A page.", EventSearchPage)},
    problems=("conversation_not_found",),
)
async def search_events(backend: Backend, conversation: ConversationUuid, query: EventSearch) -> Response:
    """Events in the order in which they happened, or the other way round. A page begins with the one that it names."""
    snapshot = await load_snapshot(backend, conversation)
    items, size, next_page = list[bytes](), 0, None
    newest_first = query.sort_order == "TIMESTAMP_DESC"
    async with aclosing(placed_events(backend, snapshot, query.page_id, newest_first=newest_first)) as events:
        async for _, place, event in events:
            if not query.admits(event):
                continue
            shown = orjson.dumps(event)
            size += len(shown)
            if len(items) == query.limit or (items and size > limit_of("answer_bytes")):
                # An action's name does not tell its place, and would have to be looked for.
                next_page = event["id"] if place_of(snapshot.number, event["id"]) else place
                break
            items.append(shown)
    return answer_json(b'{"items":[%b],"next_page_id":%b}' % (b",".join(items), orjson.dumps(next_page)))


@OPENHANDS.route(
    "GET",
    f"{_PLACE}/count",
    scope="runs:read",
    tag="openhands",
    summary="Count events",
    answers={200: ("How many there are.", Count)},
    problems=("conversation_not_found",),
)
async def count_events(backend: Backend, conversation: ConversationUuid, query: EventFilter) -> Response:
    """A number."""
    snapshot = await load_snapshot(backend, conversation)
    async with aclosing(placed_events(backend, snapshot)) as events:
        return plain(sum([query.admits(placed.event) async for placed in events]))


@OPENHANDS.route(
    "GET",
    f"{_PLACE}/{{event}}",
    scope="runs:read",
    tag="openhands",
    summary="Look at an event",
    answers={200: ("The event.", OpenHandsEvent)},
    problems=("conversation_not_found", "not_found"),
)
async def one_event(backend: Backend, conversation: ConversationUuid, event: EventUuid) -> Response:
    """An event by its id."""
    snapshot = await load_snapshot(backend, conversation)
    placed = await find_event(backend, snapshot, event)
    if placed is None:
        raise Refused("not_found", "There is no such event in the conversation.")
    return plain(placed.event)


def _text_of(event: Event) -> str:
    parts = event.get("llm_message", {}).get("content", ())
    return "\n".join(part.get("text", "") for part in parts)
