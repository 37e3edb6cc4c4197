"""The log of a conversation, entry by entry: for dialects that tell of more than messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import TypeVar

from palaver.errors import ErrorClass, StoreUnavailable, classify
from palaver.events import MESSAGES
from palaver.store.reading.events import LogEntry
from palaver.store.reading.feeds import AWAY, IDLE
from palaver.store.reading.reading import LogExtent

from .backend import Backend, within_deadline
from .conversations import LOOKED_THROUGH, LogPages

T = TypeVar("T")
FollowedPages = AsyncGenerator[tuple[Sequence[LogEntry], int], None]


async def read_log(backend: Backend, conversation_id: str, *, after: int = 0, newest_first: bool = False) -> LogPages:
    """What the log has behind a position, to its end; with ``newest_first`` from that position or the end back.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: a page took too long.
    """
    found = backend.store.runs.pages(conversation_id, after=after, newest_first=newest_first)
    async with aclosing(found) as pages:
        while True:
            try:
                page = await within_deadline(anext(pages))
            except StopAsyncIteration:
                return
            yield page


async def last_message(backend: Backend, conversation_id: str) -> LogEntry | None:
    """The newest message or result that models are still told of; None if there is none among the last entries.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: it took too long.
    """
    looked = 0
    async with aclosing(read_log(backend, conversation_id, newest_first=True)) as pages:
        async for page in pages:
            for entry in page:
                if entry.type in MESSAGES and not entry.withdrawn:
                    return entry
            looked += len(page)
            if looked >= LOOKED_THROUGH:
                break
    return None


async def follow_log(backend: Backend, conversation_id: str, *, after: int, revision: int) -> FollowedPages:
    """What the log has behind a position, and what comes, as it comes, over all runs; each page with the conversation's
    revision. An empty page says that the conversation was changed beside the log. Ends with the conversation only. All
    who follow the same one share what is read.

    While the store is away there is silence; then it goes on where it was.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    feeds, position = backend.store.conversation_feeds, after
    with feeds.listening(conversation_id) as news:
        while True:
            news.stale = False
            try:
                glance = await within_deadline(feeds.glance(conversation_id))
                while glance.entries > position:
                    page = await within_deadline(feeds.page(conversation_id, position))
                    if not page:
                        break
                    position = page[-1].position
                    yield page, revision
                if glance.revision != revision:
                    revision = glance.revision
                    yield (), revision
            except Exception as error:
                if not _away(error):
                    raise
                news.stale = True
                await asyncio.sleep(AWAY)
            if not news.stale:
                await news.silent(IDLE)


async def log_end(backend: Backend, conversation_id: str) -> LogExtent:
    """How far the log is, and the conversation's revision.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: the store took too long, or is away.
    """
    try:
        return await within_deadline(backend.store.conversation_feeds.glance(conversation_id))
    except Exception as error:
        if not _away(error):
            raise
        raise StoreUnavailable from error


async def leave_position(backend: Backend, conversation_id: str, dialect: str, position: int, lasts: timedelta) -> None:
    """Say up to which position a watcher of a dialect was told everything, to whoever tells it the rest. Of several the
    smallest stays, as long as the last one.

    Raises:
        StoreUnavailable: it took too long.
    """
    seconds = round(lasts.total_seconds())
    await within_deadline(backend.store.conversations.leave_position(conversation_id, dialect, position, seconds))


async def position_left(backend: Backend, conversation_id: str, dialect: str) -> int | None:
    """That position, while it lasts.

    Raises:
        StoreUnavailable: it took too long.
    """
    return await within_deadline(backend.store.conversations.position_left(conversation_id, dialect))


async def once_there(read: Callable[[], Awaitable[T]]) -> T:
    """What is read, once the store answers: for who tells of a log, and would lose its place in it."""
    while True:
        try:
            return await read()
        except Exception as error:
            if not _away(error):
                raise
            await asyncio.sleep(AWAY)


def _away(error: Exception) -> bool:
    """Whether it is the store that failed, and not what was asked of it."""
    return isinstance(error, StoreUnavailable) or classify(error).error_class is ErrorClass.STORAGE
