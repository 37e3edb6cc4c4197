"""Server-sent events: a run's events as they come, one ``run.finished``, then the end of the stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.closing import end
from palaver.errors import ErrorClass, UnknownRun, classify
from palaver.events import LAST, REWOUND
from palaver.models import Event
from palaver.store.feeds import Feeds

_log = logging.getLogger("palaver.api")
_PAGE: Final = 500
_RETRY: Final = b"retry: 2000\n\n"
"""Milliseconds after which a browser connects again."""
_KEEP_ALIVE: Final = b": keep-alive\n\n"


def frame(event: Event) -> bytes:
    """An event on the wire; its id is what ``Last-Event-ID`` repeats."""
    if event.type == REWOUND:
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

    Raises what reading them raises.
    """
    last, seen = after, None

    def lines(event: Event) -> bytes:
        nonlocal last, seen
        missing = _about("stream.gap", run_id, last + 1, event.seq - 1) if event.seq > last + 1 else b""
        last, seen = event.seq, event.at
        return missing + frame(event)

    yield _RETRY
    while True:
        # What is there already goes out in large pieces.
        page = await feeds.page(run_id, after=last, limit=_PAGE)
        if page:
            yield b"".join(map(lines, page))
            if page[-1].type == LAST:
                return
        if len(page) < _PAGE:
            break
    async with aclosing(feeds.watch(run_id, after=last, seen=seen)) as events:  # type: ignore[type-var]
        async for event in events:
            yield _KEEP_ALIVE if event is None else lines(event)


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
