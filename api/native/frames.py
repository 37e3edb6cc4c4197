"""Events as this dialect streams them: one server-sent event each."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from palaver.events import EventKind, StoredIn
from palaver.operations import Batches, PlacedBatches, PlacedEvent, StoredEvent

from ..http.headers import EVENT_STREAM
from ..kit.streams import Frames, Outlet

_RETRY: Final = (1000, 3000)
"""Milliseconds, some number between these, after which a browser connects again: not all at the same moment."""
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_KEPT: Final = frozenset(kind for kind in EventKind if kind.durable)
_UNNUMBERED: Final = frozenset(kind for kind in EventKind if kind.stored_in is StoredIn.NOWHERE)

_STREAM: Final[Mapping[str, Any]] = {
    "schema": {
        "description": "Each event of the stream.",
        "type": "object",
        "required": ["data"],
        "properties": {
            "id": {"type": "string", "description": "The event's `seq`; without one, nothing can be resumed from it."},
            "event": {"type": "string", "enum": list(EventKind), "description": "Its `type`. Newer servers have more."},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"$ref": "#/components/schemas/KnownEvent"},
                "description": "The event, on one line.",
            },
        },
    },
    "example": 'id: 3\nevent: run.started\ndata: {"type":"run.started","run_id":"…","seq":3,"at":"…"}\n\n',
}
STREAMS: Final = {EVENT_STREAM: _STREAM}


def frame(event: StoredEvent) -> bytes:
    """An event on the wire. Its id is what ``Last-Event-ID`` repeats: nothing is resumed from one without."""
    number = b"" if event.type in _UNNUMBERED else b"id: %d\n" % event.seq
    return b"%bevent: %b\ndata: %b\n\n" % (number, event.type.encode(), event.to_json())


def placed_frame(event: PlacedEvent) -> bytes:
    """An event of a conversation on the wire. Its id is its position if the log has it, else the position behind which
    it came; and behind that the number of the last event of the run whose answer it is in."""
    seq = event.beside if event.type in _KEPT else event.seq
    if event.type in _UNNUMBERED:
        number = b""
    elif seq:
        number = b"id: %d.%d\n" % (event.position, seq)
    else:
        number = b"id: %d\n" % event.position
    return b"%bevent: %b\ndata: %b\n\n" % (number, event.type.encode(), event.to_json())


_shared: Final = Frames(frame)
_placed: Final = Frames(placed_frame)


def outlet() -> Outlet:
    """Return the way of single events of a run to one client."""
    return Outlet(_shared.of)


async def placed_frames(batches: PlacedBatches) -> AsyncGenerator[bytes, None]:
    """The same of a conversation."""
    yield b"retry: %d\n\n" % random.randint(*_RETRY)
    async with aclosing(batches):
        async for events in batches:
            yield b"".join(map(_placed.of, events)) or _KEEP_ALIVE


async def frames(batches: Batches) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a stream: events that are there together go out together; a comment when nothing comes."""
    yield b"retry: %d\n\n" % random.randint(*_RETRY)
    async with aclosing(batches):
        async for events in batches:
            yield b"".join(map(_shared.of, events)) or _KEEP_ALIVE
