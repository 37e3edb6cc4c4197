"""The log of a conversation, entry by entry: for dialects that tell of more than messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from palaver.store.events import LogEntry

from .backend import Backend, within_deadline

LogPages = AsyncGenerator[Sequence[LogEntry], None]
"""Entries in order, a page at a time."""


async def read_log(backend: Backend, conversation_id: str, *, after: int = 0) -> LogPages:
    """What the log has behind a position, to its end.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: a page took too long.
    """
    async with aclosing(backend.store.runs.pages(conversation_id, after=after)) as pages:
        while True:
            try:
                page = await within_deadline(anext(pages))
            except StopAsyncIteration:
                return
            yield page


async def last_entry(backend: Backend, conversation_id: str, entries: int) -> LogEntry | None:
    """The newest entry of a log that has so many; None if it has none.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: it took too long.
    """
    if not entries:
        return None
    async with aclosing(read_log(backend, conversation_id, after=entries - 1)) as pages:
        async for page in pages:
            return page[-1]
    return None
