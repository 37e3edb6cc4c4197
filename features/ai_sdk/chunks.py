"""Chunks of the UI message stream, as objects and on the wire."""

from __future__ import annotations

from typing import Any, Final

from api.kit.projections import Item

Chunk = Item
"""A chunk: what there is nothing to say about is not there, for null ends the stream."""
DONE: Final = b"data: [DONE]\n\n"
HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1", "Cache-Control": "no-cache"}
STREAM: Final[dict[str, Any]] = {
    # Without a type: who judges streams takes it for that of an event, and generators of clients for that of the text.
    "schema": {"description": "A UI message stream, version 1: server-sent events, each a chunk."},
    "example": 'data: {"type":"text-delta","id":"text-1","delta":"Hello"}\n\ndata: [DONE]\n\n',
}
