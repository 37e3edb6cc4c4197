"""Server-sent events: a run's events as they come, one ``run.finished``, then the end of the stream."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.closing import end
from palaver.errors import ErrorClass, UnknownRun, classify
from palaver.events import EventKind
from palaver.limits import MIB
from palaver.models import Event
from palaver.store.feeds import Feeds

_log = logging.getLogger("palaver.api")
_RETRY: Final = (1000, 3000)
"""Milliseconds, some number between these, after which a browser connects again: not all at the same moment."""
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_FRAMES: Final = 1024
_FRAME_BYTES: Final = 4 * MIB


class Frames:
    """Events on the wire. Those of late are kept: all watchers of a run get the same, encoded once."""

    def __init__(self) -> None:
        self._made: OrderedDict[int, tuple[Event, bytes]] = OrderedDict()
        """By identity; what is here keeps its own."""
        self._size = 0

    def of(self, event: Event) -> bytes:
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


def frame(event: Event) -> bytes:
    """An event on the wire; its id is what ``Last-Event-ID`` repeats."""
    if event.type == EventKind.STREAM_REWOUND:
        return _about(event.type, event.run_id, event.data["from"], event.data["to"])
    data = orjson.dumps(
        {**event.data, "run_id": event.run_id, "seq": event.seq, "at": event.at}, option=orjson.OPT_UTC_Z
    )
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.type.encode(), data)


def _about(kind: str, run_id: str, first: int, last: int) -> bytes:
    """Says something about events that are gone. Without an id: nothing can be resumed from it."""
    data = orjson.dumps({"run_id": run_id, "from": first, "to": last})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


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
                    lines.append(_about("stream.gap", run_id, last + 1, event.seq - 1))
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
