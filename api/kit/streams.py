"""Streams: events on the wire as they come, until they end, the client goes or the process has to end."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from palaver.errors import ErrorClass, UnknownConversation, UnknownRun, classify
from palaver.operations import StoredEvent, key_ended
from palaver.processes.tasks import end
from palaver.vocabulary.limits import MIB

from ..http.client_connection import ClientConnection, chunked_connection_of
from ..http.headers import EVENT_STREAM

_log = logging.getLogger("palaver.api")
_FRAMES: Final = 1024
_FRAME_BYTES: Final = 4 * MIB


SendPiece = Callable[[bytes], Awaitable[None]]
"""A function that sends a piece of a body."""
E = TypeVar("E", bound=StoredEvent)
F = TypeVar("F", bound=bytes)


class Frames(Generic[E, F]):
    """Events as a dialect writes them. The latest stay in memory: all watchers of a run get the same, written once."""

    def __init__(self, write: Callable[[E], F]) -> None:
        self._write = write
        self._made: OrderedDict[E, F] = OrderedDict()
        """The frames by event: one that was read twice, or came live and was read, is one event."""
        self._size = 0
        self._last: tuple[E, F] | None = None
        """The one that was asked for last: all watchers of a run ask for it together."""

    def of(self, event: E) -> F:
        """Return the frame of an event."""
        if self._last is not None and self._last[0] is event:
            return self._last[1]
        frame = self._made.get(event)
        if frame is None:
            frame = self._add(event)
        self._last = event, frame
        return frame

    def _add(self, event: E) -> F:
        made = self._made[event] = self._write(event)
        self._size += len(made)
        while len(self._made) > _FRAMES or self._size > _FRAME_BYTES:
            self._size -= len(self._made.popitem(last=False)[1])
        return made


class Outlet:
    """The way of single events to a client that has all before them: past the tasks and generators of its stream."""

    def __init__(self, frame_of: Callable[[StoredEvent], bytes]) -> None:
        self._frame_of = frame_of
        self.connection: ClientConnection | None = None
        """The connection of the client, while there is a stream on it that can be written to."""

    def pass_on(self, event: StoredEvent) -> bool:
        """Send an event at once, if that can be; tell whether it was."""
        return self.connection is not None and self.connection.write_chunk(self._frame_of(event))


class EventStream(Response):
    """Sends frames until they end, the client goes, its key is not valid any more, or the process has to end.

    An error on the way ends the stream without ``run.finished``: the client connects again and goes on.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        closing: asyncio.Event,
        headers: Mapping[str, str] | None = None,
        media_type: str = EVENT_STREAM,
        outlet: Outlet | None = None,
    ) -> None:
        self._frames = frames
        self._outlet = outlet
        self._closing = closing
        self.media_type = media_type
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        connection = chunked_connection_of(scope)
        if self._outlet is not None:
            self._outlet.connection = connection
        pump = asyncio.create_task(self._pump(connection.send_chunk if connection else _pieces(send)))
        endings = [event.wait() for event in (self._closing, key_ended.get()) if event is not None]
        others = [asyncio.create_task(other) for other in (gone(receive), *endings)]
        try:
            await asyncio.wait([pump, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._outlet is not None:
                self._outlet.connection = None
            await end(pump, *others)
        if connection is None or self.whole:
            await send({"type": "http.response.body", "body": b""})
        else:
            connection.cut()

    @property
    def whole(self) -> bool:
        """True if the client may take the end of the body for the end of what there is."""
        return True

    async def _pump(self, send: SendPiece) -> None:
        async with aclosing(self._frames) as frames:
            try:
                async for piece in frames:
                    await send(piece)
            except (UnknownRun, UnknownConversation):
                return
            except Exception as error:
                stored = classify(error).error_class is ErrorClass.STORAGE
                _log.warning("a stream broke: %s", type(error).__name__, exc_info=None if stored else error)


def _pieces(send: Send) -> SendPiece:
    async def send_piece(piece: bytes) -> None:
        await send({"type": "http.response.body", "body": piece, "more_body": True})

    return send_piece


async def gone(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
