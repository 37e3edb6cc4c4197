"""The events of a conversation in order, each with its place in the log: where pages begin, and what an id leads to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple
from uuid import UUID

from palaver.schemas.models import AgentSpec

from .. import operations
from ..operations import Backend
from .events import Event
from .ids import FIRST, event_id, place_of
from .looking import Seen

_BY_INDEX: Final = 2048
"""Added to the number of an event in its entry, in the name of its place."""


class Placed(NamedTuple):
    """An event, and where it stands."""

    position: int
    """In the log, of the entry that it is of."""
    name: str
    """Of its place: events of calls are named otherwise, but a page may begin at each."""
    event: Event


async def placed_events(
    backend: Backend, seen: Seen, first: str | None = None, *, newest_first: bool = False
) -> AsyncGenerator[Placed, None]:
    """The events from the one of a name, or at the place of that name, to the end; with ``newest_first`` back to the
    beginning. A name that the conversation does not have means all of them."""
    named = place_of(seen.number, first) if first is not None else None
    if first is not None and named is None and (action := await find_event(backend, seen, first)) is not None:
        first = action.name
        named = place_of(seen.number, first)
    position, begun = named[0] if named and named[0] <= seen.conversation.entries else None, False
    if not newest_first and position in (None, FIRST):
        for prompt in await _system_prompt(backend, seen):
            yield prompt
    after = 0 if position is None else position + 1 if newest_first else max(position - 1, 0)
    async with aclosing(operations.read_log(backend, seen.id, after=after, newest_first=newest_first)) as pages:
        async for page in pages:
            for entry in page:
                events = list(enumerate(seen.writer.of(entry)))
                for index, event in reversed(events) if newest_first else events:
                    name = event_id(seen.number, entry.position, _BY_INDEX + index)
                    if not begun and entry.position == position and first not in (name, event["id"]):
                        continue
                    begun = True
                    yield Placed(entry.position, name, event)
    if newest_first:
        for prompt in await _system_prompt(backend, seen):
            yield prompt


async def find_event(backend: Backend, seen: Seen, id: str) -> Placed | None:
    """The event of an id; None if there is none. That of a call does not tell its place: it is looked for from the
    newest back."""
    told = place_of(seen.number, id) is not None
    if not told and not _may_be_an_event(id):
        return None
    async with aclosing(placed_events(backend, seen, id if told else None, newest_first=True)) as events:
        async for each in events:
            if each.event["id"] == id:
                return each
            if told:
                break
    return None


def _may_be_an_event(id: str) -> bool:
    """Whether it can be the name of an action, which has to be looked for."""
    try:
        return UUID(id).version == 5
    except ValueError:
        return False


async def _system_prompt(backend: Backend, seen: Seen) -> list[Placed]:
    """What stands before the log, if there is an agent. Clients sort by time, and a fork is younger than the log with
    which it begins."""
    agent: AgentSpec | None = seen.conversation.agent
    if agent is None:
        return []
    at = seen.conversation.created_at
    async with aclosing(operations.read_log(backend, seen.id)) as pages:
        async for page in pages:
            at = min(at, page[0].at)
            break
    prompt = seen.writer.system_prompt(at, agent.instructions)
    return [Placed(FIRST, prompt["id"], prompt)]
