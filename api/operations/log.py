"""The log of a conversation, entry by entry: for dialects that tell of more than messages."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from palaver.errors import ErrorClass, StoreUnavailable, classify
from palaver.events import MESSAGES
from palaver.store.events import LogEntry
from palaver.store.feeds import AWAY, IDLE

from .backend import Backend, within_deadline
from .conversations import LOOKED_THROUGH, LogPages


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


async def last_message(backend: Backend, conversation_id: str) -> LogEntry | None:
    """The newest message or result that models are still told of; None if there is none among the last entries.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: it took too long.
    """
    looked = 0
    async with aclosing(backend.store.runs.pages(conversation_id, newest_first=True)) as pages:
        while looked < LOOKED_THROUGH:
            try:
                page = await within_deadline(anext(pages))
            except StopAsyncIteration:
                return None
            for entry in page:
                if entry.type in MESSAGES and not entry.withdrawn:
                    return entry
            looked += len(page)
    return None


async def follow_log(backend: Backend, conversation_id: str, *, after: int, revision: int) -> LogPages:
    """What the log has behind a position, and what comes, as it comes, over all runs; an empty page says that the
    conversation was changed beside it since ``revision``. Ends with the conversation only.

    While the store is away there is silence; then it goes on where it was.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    position = after
    with backend.store.conversation_feeds.listening(conversation_id) as news:
        while True:
            news.stale = False
            try:
                glance = await within_deadline(backend.store.runs.glance(conversation_id))
                if glance.entries > position:
                    async with aclosing(read_log(backend, conversation_id, after=position)) as pages:
                        async for page in pages:
                            position = page[-1].position
                            yield page
                if glance.revision != revision:
                    revision = glance.revision
                    yield ()
            except Exception as error:
                if not isinstance(error, StoreUnavailable) and classify(error).error_class is not ErrorClass.STORAGE:
                    raise
                news.stale = True
                await asyncio.sleep(AWAY)
            if not news.stale:
                await news.silent(IDLE)
