"""The log of a conversation, entry by entry: for dialects that tell of more than messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from palaver.errors import ErrorClass, StoreUnavailable, UnknownRun, classify
from palaver.events import EventKind
from palaver.store.events import LogEntry

from .backend import Backend, within_deadline

LogPages = AsyncGenerator[Sequence[LogEntry], None]
"""Entries in order, a page at a time."""
_POLL: Final = 0.2
"""Seconds between two looks at a conversation without a run: nothing tells of what is done to it."""
_AWAY: Final = 1.0
"""The same while the store does not answer."""
_FLEETING: Final = frozenset(kind for kind in EventKind if not kind.durable)
"""Events that the log does not have."""


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


async def follow_log(backend: Backend, conversation_id: str, *, after: int, revision: int) -> LogPages:
    """What the log has behind a position, and what comes, as it comes, over all runs; an empty page says that the
    conversation was changed beside it since ``revision``. Ends with the conversation only.

    While the store is away there is silence; then it goes on where it was.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    log = _Follower(backend, conversation_id, after)
    while True:
        try:
            glance = await within_deadline(backend.store.runs.glance(conversation_id))
            if glance.revision != revision:
                revision = glance.revision
                yield ()
            async with aclosing(log.of_run(glance.active) if glance.active else log.new()) as pages:
                async for page in pages:
                    yield page
        except Exception as error:
            if not isinstance(error, StoreUnavailable) and classify(error).error_class is not ErrorClass.STORAGE:
                raise
            await asyncio.sleep(_AWAY)
        else:
            if glance.active is None:
                await asyncio.sleep(_POLL)


@dataclass(slots=True)
class _Follower:
    """Somebody who reads a log as it grows."""

    backend: Backend
    conversation_id: str
    position: int

    async def new(self) -> LogPages:
        """What is there behind the last entry that was read."""
        async with aclosing(read_log(self.backend, self.conversation_id, after=self.position)) as pages:
            async for page in pages:
                self.position = page[-1].position
                yield page

    async def of_run(self, run_id: str) -> LogPages:
        """What is there, and what a run adds until it ends, or nothing is heard of it for a while."""
        try:
            # Before the log is read: what comes later is heard.
            heard = (await self.backend.run(run_id)).last_event_id
        except UnknownRun:
            heard = 0
        async with aclosing(self.backend.store.feeds.follow(run_id, after=heard)) as batches:  # type: ignore[type-var]
            async with aclosing(self.new()) as pages:
                async for page in pages:
                    yield page
            try:
                async for events in batches:
                    if not events:
                        return
                    if any(event.type not in _FLEETING for event in events):
                        async with aclosing(self.new()) as pages:
                            async for page in pages:
                                yield page
            except UnknownRun:
                # It was deleted: the log goes on without it.
                return
