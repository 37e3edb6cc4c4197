"""What a model is saying just now, for clients that ask for it: told between the events of the log, and never kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

from palaver.errors import Refused, UnknownRun
from palaver.events import EventKind
from palaver.processes.tasks import end

from .. import operations
from ..operations import Backend, EventSlice, LogEntry, StoredEvent
from .events import Event, Writer

_DELTAS: Final = frozenset({EventKind.MESSAGE_DELTA, EventKind.REASONING_DELTA})
Tell = Callable[[Event], Awaitable[None]]


class Deltas:
    """Those of one run after the other, for one socket: each before the entry of the log that it comes before."""

    def __init__(self, backend: Backend, writer: Writer, tell: Tell) -> None:
        self._backend, self._writer, self._tell = backend, writer, tell
        self._telling = asyncio.Lock()
        self._run = ""
        self._told = 0
        """The number in the run up to which everything was told."""
        self._hearing: asyncio.Task[None] | None = None

    async def hear(self, run_id: str, after: int) -> None:
        """Tell those of this run, behind an event of it."""
        await self.hear_no_more()
        self._run, self._told = run_id, after
        self._hearing = asyncio.create_task(self._hear())

    async def hear_no_more(self) -> None:
        """Tell none."""
        if self._hearing is not None:
            await end(self._hearing)
        self._run, self._hearing = "", None

    @asynccontextmanager
    async def before(self, entry: LogEntry) -> AsyncIterator[None]:
        """While an entry is told: the deltas before it were, and none behind it is."""
        async with self._telling:
            if entry.run_id == self._run:
                await self._catch_up(entry.seq)
            yield
        if entry.type == EventKind.RUN_STARTED:
            await self.hear(entry.run_id, entry.seq)
        elif entry.type == EventKind.RUN_FINISHED and entry.run_id == self._run:
            await self.hear_no_more()

    async def _hear(self) -> None:
        with suppress(UnknownRun):
            batches = operations.follow(self._backend, self._run, self._told, "reasoning", counted=False)
            async with aclosing(batches):
                async for events in batches:
                    async with self._telling:
                        await self._tell_of(events)

    async def _catch_up(self, seq: int) -> None:
        """Tell what the feed has before an event that is in the log already."""

        async def read() -> EventSlice:
            return await operations.read_events(self._backend, self._run, self._told, seq - 1 - self._told, "reasoning")

        with suppress(UnknownRun, Refused):
            while self._told < seq - 1:
                before = self._told
                events = (await operations.once_there(read)).events
                await self._tell_of([event for event in events if event.seq < seq])
                if self._told == before:
                    break
        self._told = max(self._told, seq)

    async def _tell_of(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            if event.seq > self._told:
                self._told = event.seq
                if event.type in _DELTAS:
                    await self._tell(self._writer.delta(event))
