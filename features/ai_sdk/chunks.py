"""Chunks of the UI message stream, as objects and on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from api.kit.streams import Frames
from palaver.events import EventKind
from palaver.operations import StoredEvent

Chunk = dict[str, Any]
"""A chunk, as JSON has it: what there is nothing to say about is not there, for null ends the stream."""
DONE: Final = b"data: [DONE]\n\n"
HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1", "Cache-Control": "no-cache"}


def written(chunks: Iterable[Chunk]) -> bytes:
    """Return chunks as they are on the wire."""
    return b"".join(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks)


def part_id(kind: str, step: str) -> str:
    """Return the id of the text or the reasoning of a model step. One step has one of them at a time."""
    return f"{kind}-{step}"


class DeltaFrame(bytes):
    """A delta on the wire, and what a watcher's state machine has to know of it."""

    kind: str
    step: str
    text: str
    length: int
    raw: bytes
    """The text in UTF-8, where it is text of the answer."""
    place: tuple[str, str, int] | None
    """The part that it goes on with: kind, step and attempt. None if it says nothing."""


def _write(event: StoredEvent) -> DeltaFrame:
    data = event.data
    kind = "text" if event.type == EventKind.MESSAGE_DELTA else "reasoning"
    chunk = {"type": f"{kind}-delta", "id": part_id(kind, data["step"]), "delta": data["text"]}
    frame = DeltaFrame(written([chunk]))
    frame.kind, frame.step, frame.text = kind, data["step"], data["text"]
    counted = frame.text if kind == "text" else ""
    frame.length, frame.raw = len(counted), counted.encode()
    frame.place = (kind, frame.step, data["attempt"]) if frame.text else None
    return frame


NO_DELTA: Final = DeltaFrame()
DELTAS: Final[Frames[StoredEvent, DeltaFrame]] = Frames(_write)
"""Deltas, written once for all who watch a run."""
STREAM: Final[dict[str, Any]] = {
    # Without a type: who judges streams takes it for that of an event, and generators of clients for that of the text.
    "schema": {"description": "A UI message stream, version 1: server-sent events, each a chunk."},
    "example": 'data: {"type":"text-delta","id":"text-1","delta":"Hello"}\n\ndata: [DONE]\n\n',
}
