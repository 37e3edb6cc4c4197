"""The events of a conversation, over all of its runs: as they come, or a page of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing

from palaver.errors import Refused
from palaver.late import dataclass
from palaver.operations.backend import Backend, within_deadline
from palaver.operations.conversations import LOOKED_THROUGH, LogPages
from palaver.operations.waiting import admit_watcher
from palaver.operations.watching import Included, quietly
from palaver.store.reading.conversation_feeds import BEGINNING, FeedCursor, PlacedBatches
from palaver.store.reading.events import PlacedEvent
from palaver.vocabulary.limits import count_exceeded, limit_of


async def watch_conversation(
    backend: Backend, conversation_id: str, after: FeedCursor = BEGINNING, include: Included = None
) -> PlacedBatches:
    """Return the events behind ``after``, over all runs, until the conversation is gone. Entries of the log come
    exactly once; deltas are those of the active run, and of an answer of another run its text as one. A cursor holds
    over connections and processes.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        Refused: ``invalid_cursor``, the conversation has not come so far.
        NoRoom: too many clients watch already.
    """
    conversation = await within_deadline(backend.store.runs.conversation(conversation_id))
    if after.position > conversation.entries:
        raise Refused("invalid_cursor", f"The conversation has {conversation.entries} entries so far.")
    admit_watcher(backend)
    batches = backend.store.conversation_feeds.follow(conversation_id, after)
    return batches if include else quietly(batches)


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """A slice of a conversation's events."""

    events: Sequence[PlacedEvent]
    reached: int
    """The position of the last entry that was looked at, to go on behind."""
    more: bool
    """True if there are more by now."""


async def read_conversation_events(
    backend: Backend,
    conversation_id: str,
    *,
    after: int = 0,
    limit: int,
    types: Collection[str] = (),
    newest_first: bool = False,
) -> PlacedSlice:
    """Return events of the log behind position ``after``, of these types if any are named; with ``newest_first`` from
    that position or the end back.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    pages = backend.store.runs.pages(conversation_id, after=after, newest_first=newest_first)
    return await within_deadline(_slice(pages, after, limit, types))


async def _slice(entries: LogPages, after: int, limit: int, types: Collection[str]) -> PlacedSlice:
    events, position, looked, size = list[PlacedEvent](), after, 0, 0
    async with aclosing(entries) as pages:
        async for page in pages:
            for entry in page:
                if not types or entry.type in types:
                    if len(events) == limit or size > limit_of("answer_bytes"):
                        if size > limit_of("answer_bytes"):
                            count_exceeded("answer_bytes")
                        return PlacedSlice(events, position, more=True)
                    events.append(PlacedEvent.of(entry, entry.position))
                    size += len(entry.payload)
                position = entry.position
            looked += len(page)
            if looked >= LOOKED_THROUGH:
                return PlacedSlice(events, position, more=True)
    return PlacedSlice(events, position, more=False)
