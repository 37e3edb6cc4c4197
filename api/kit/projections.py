"""A run's events on the wire of another protocol: each watcher has a state machine that turns events into frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from palaver.operations import Batches, StoredEvent

from ..http.client_connection import ClientConnection
from .streams import EventStream, Outlet

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment for clients and proxies, while nothing comes."""


class Projection(Protocol):
    """A state machine from the events of a run to frames.

    It depends on nothing but the events that it was told of, in their order: told the same once more, another one says
    the same, in whatever process it is.
    """

    @property
    def over(self) -> bool:
        """True once the last frame was made: more events make no more."""

    def take(self, events: Sequence[StoredEvent]) -> bytes:
        """Return the frames of these events; nothing where they show nothing there."""

    def at_once(self, event: StoredEvent) -> bytes | None:
        """Return the frame of a delta that only goes on with what was sent, and changes nothing before ``passed``; None
        for any other event."""

    def passed(self, event: StoredEvent) -> None:
        """Note that the frame of this delta was sent at once."""


class ProjectionOutlet(Outlet):
    """The way of single deltas to the client of a projection."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self.connection: ClientConnection | None = None

    def pass_on(self, event: StoredEvent) -> bool:
        """Send a delta at once, if that can be; tell whether it was."""
        if self.connection is None:
            return False
        frame = self._projection.at_once(event)
        if frame is None or not self.connection.write_chunk(frame):
            return False
        self._projection.passed(event)
        return True


class ProjectedStream(EventStream):
    """Sends what a projection makes of a run's events, from ``opening`` to ``closing_frame``.

    Clients of such wires take the end of the body for the end of the answer. So what breaks off before that, as the
    process ends or the store fails, is cut: they see that the connection is lost, and come back.
    """

    def __init__(
        self,
        batches: Batches,
        projection: Projection,
        closing: asyncio.Event,
        outlet: ProjectionOutlet,
        headers: Mapping[str, str],
        *,
        opening: bytes = b"",
        closing_frame: bytes = b"",
    ) -> None:
        super().__init__(_frames(batches, projection, opening, closing_frame), closing, headers, outlet=outlet)
        self._projection = projection

    @property
    def whole(self) -> bool:
        """True if the client was sent all of it."""
        return self._projection.over


async def _frames(
    batches: Batches, projection: Projection, opening: bytes, closing_frame: bytes
) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches):
        if opening:
            yield opening
        async for events in batches:
            frames = projection.take(events)
            if projection.over:
                yield frames + closing_frame
                return
            yield frames or KEEP_ALIVE
