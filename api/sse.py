"""Server-sent events: a run's events as they come, one ``run.finished``, then the end of the stream."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.closing import end
from palaver.errors import ErrorClass, UnknownRun, classify
from palaver.events import EventKind, Kept
from palaver.limits import MIB
from palaver.store.events import StoredEvent, about_stream
from palaver.store.feeds import Feeds

_log = logging.getLogger("palaver.api")
_RETRY: Final = (1000, 3000)
"""Milliseconds, some number between these, after which a browser connects again: not all at the same moment."""
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_UNNUMBERED: Final = frozenset(kind for kind in EventKind if kind.kept is Kept.NOWHERE)
_FRAMES: Final = 1024
_FRAME_BYTES: Final = 4 * MIB


class Frames:
    """Events on the wire. Those of late are kept: all watchers of a run get the same, encoded once."""

    def __init__(self) -> None:
        self._made: OrderedDict[int, tuple[StoredEvent, bytes]] = OrderedDict()
        """By identity; what is here keeps its own."""
        self._size = 0

    def of(self, event: StoredEvent) -> bytes:
        """The frame of an event."""
        found = self._made.get(id(event))
        if found is not None:
            return found[1]
        made = frame(event)
        self._made[id(event)] = event, made
        self._size += len(made)
        while len(self._made) > _FRAMES or self._size > _FRAME_BYTES:
            self._size -= len(self._made.popitem(last=False)[1][1])
        return made


_shared: Final = Frames()


def frame(event: StoredEvent) -> bytes:
    """An event on the wire. Its id is what ``Last-Event-ID`` repeats: nothing is resumed from one without."""
    number = b"" if event.type in _UNNUMBERED else b"id: %d\n" % event.seq
    return b"%bevent: %b\ndata: %b\n\n" % (number, event.type.encode(), event.to_json())


async def frames(feeds: Feeds, run_id: str, after: int) -> AsyncIterator[bytes]:
    """The events behind ``after`` on the wire, until ``run.finished``; a comment when nothing comes.

    Raises what reading them raises, but for trouble with the store, which passes.
    """
    last = after
    yield b"retry: %d\n\n" % random.randint(*_RETRY)
    async with aclosing(feeds.follow(run_id, after=after)) as batches:  # type: ignore[type-var]
        async for events in batches:
            lines = []
            for event in events:
                if event.seq > last + 1:
                    gap = about_stream(EventKind.STREAM_GAP, run_id, last, event.at, last + 1, event.seq - 1)
                    lines.append(frame(gap))
                last = event.seq
                lines.append(_shared.of(event))
            # What is there together goes out together.
            yield b"".join(lines) or _KEEP_ALIVE


class EventStream(Response):
    """Sends frames until they end, the client goes, or the process is told to end.

    An error on the way ends the stream without ``run.finished``: the client connects again and goes on.
    """

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncIterator[bytes], closing: asyncio.Event, headers: Mapping[str, str] | None = None
    ) -> None:
        self._frames = frames
        self._closing = closing
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        pump = asyncio.create_task(self._pump(send))
        others = [asyncio.create_task(_gone(receive)), asyncio.create_task(self._closing.wait())]
        try:
            await asyncio.wait([pump, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(pump, *others)
        await send({"type": "http.response.body", "body": b""})

    async def _pump(self, send: Send) -> None:
        body: dict[str, Any] = {"type": "http.response.body", "more_body": True}
        async with aclosing(self._frames) as frames:  # type: ignore[type-var]
            try:
                async for piece in frames:
                    await send({**body, "body": piece})
            except UnknownRun:
                return
            except Exception as error:
                stored = classify(error).error_class is ErrorClass.STORAGE
                _log.warning("a stream broke: %s", type(error).__name__, exc_info=None if stored else error)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
