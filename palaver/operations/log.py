"""The log of a conversation, entry by entry: for dialects that show more than messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import TypeVar

from palaver.errors import ErrorClass, StoreUnavailable, classify
from palaver.events import MESSAGES, EventKind
from palaver.operations.backend import Backend, within_deadline
from palaver.operations.conversations import LOOKED_THROUGH, LogPages
from palaver.schemas.models import Run
from palaver.store.reading.events import LogEntry
from palaver.store.reading.feeds import AWAY, IDLE
from palaver.store.reading.reading import LogExtent

T = TypeVar("T")
FollowedPages = AsyncGenerator[tuple[Sequence[LogEntry], int], None]


async def read_log(backend: Backend, conversation_id: str, *, after: int = 0, newest_first: bool = False) -> LogPages:
    """Yield the entries of the log behind a position, to its end; with ``newest_first`` from that position or the end
    back.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: a page took too long.
    """
    log_pages = backend.store.runs.pages(conversation_id, after=after, newest_first=newest_first)
    async with aclosing(log_pages) as pages:
        while True:
            try:
                page = await within_deadline(anext(pages))
            except StopAsyncIteration:
                return
            yield page


async def read_run_log(backend: Backend, run: Run) -> LogPages:
    """Yield the entries of one run, from its first one up to its end, or up to the newest.

    Raises:
        UnknownRun, UnknownConversation: it is not there (any more).
        StoreUnavailable: a page took too long.
    """
    begins_at = await within_deadline(backend.store.runs.begins_at(run.id))
    async with aclosing(read_log(backend, run.conversation_id, after=begins_at)) as pages:
        async for page in pages:
            own = [entry for entry in page if entry.run_id == run.id]
            if own:
                yield own
            if own and own[-1].type == EventKind.RUN_FINISHED:
                return


def begins_turn(entry: LogEntry) -> bool:
    """Tell whether an entry is a message of the user that a run was to answer: models see it still, and it came neither
    into a run that was going on nor from Palaver itself."""
    if entry.type != EventKind.MESSAGE_CREATED or entry.withdrawn:
        return False
    data = entry.data
    return data["message"]["role"] == "user" and not data["steer"] and not data["nudge"]


async def last_message(backend: Backend, conversation_id: str) -> LogEntry | None:
    """Return the newest message or result that models are still sent; None if there is none among the last entries.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: the store took too long.
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
    """Yield the entries of the log behind a position, and new ones as they come, over all runs; each page with the
    conversation's revision. An empty page means that the conversation was changed beside the log. It ends with the
    conversation only. All followers of one conversation share the reads.

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
    """Return the end of the log, and the conversation's revision.

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
    """Leave the position up to which a watcher of a dialect was sent everything, for the process that sends it the
    rest. Of several positions the smallest stays, for as long as the last one ``lasts``.

    Raises:
        StoreUnavailable: the store took too long.
    """
    seconds = round(lasts.total_seconds())
    await within_deadline(backend.store.conversations.leave_position(conversation_id, dialect, position, seconds))


async def position_left(backend: Backend, conversation_id: str, dialect: str) -> int | None:
    """Return the position that was left; None if there is none, or not any more.

    Raises:
        StoreUnavailable: the store took too long.
    """
    return await within_deadline(backend.store.conversations.position_left(conversation_id, dialect))


async def once_there(read: Callable[[], Awaitable[T]]) -> T:
    """Read, again and again until the store answers: for watchers of a log, who would lose their place in it."""
    while True:
        try:
            return await read()
        except Exception as error:
            if not _away(error):
                raise
            await asyncio.sleep(AWAY)


def _away(error: Exception) -> bool:
    """Tell whether the store is away: an error of the store itself, and not of the request to it."""
    return classify(error).error_class is ErrorClass.STORAGE
