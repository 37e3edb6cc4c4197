"""Answers put together from their parts, as bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from tests.process.hostile.server import Asked, Pieces

Play = Callable[[Asked], Pieces]

DONE = b"data: [DONE]\n\n"
FINE = "Fine."


def head(status: object = 200, kind: str = "text/event-stream", *lines: str) -> bytes:
    """The head of an answer that ends with its connection."""
    named = (f"Content-Type: {kind}", "Connection: close", *lines)
    return "\r\n".join((f"HTTP/1.1 {status} Well", *named, "", "")).encode("latin-1")


def event(delta: Any, finish: Any = None, **more: Any) -> bytes:
    """One chunk of a stream."""
    return (
        b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}) + b"\n\n"
    )


FINE_STREAM = event({"role": "assistant", "content": FINE}) + event({}, "stop") + DONE


def stream(*pieces: bytes) -> Play:
    """An event stream of these pieces."""
    return lambda asked: (head(), *pieces)


def raw(*pieces: Any) -> Play:
    """These pieces and nothing else."""
    return lambda asked: pieces


def document(body: Any, status: int = 200) -> Play:
    """A JSON document, or bytes in its place."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return lambda asked: (head(status, "application/json", f"Content-Length: {len(data)}"), data)


def message(said: Any, finish: Any = "stop", **more: Any) -> Play:
    """A completion that is not streamed."""
    return document({"choices": [{"index": 0, "message": said, "finish_reason": finish}], **more})


def calls(*made: Any) -> bytes:
    """A chunk with tool calls."""
    return event({"role": "assistant", "tool_calls": list(made)})


def call(index: Any, name: Any = "nobody", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    """One call of a chunk."""
    return {"index": index, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calling(*chunks: bytes) -> Play:
    """Chunks of tool calls, and once these are answered a fine end."""

    def play(asked: Asked) -> Pieces:
        if asked.answered:
            return (head(), FINE_STREAM)
        return (head(), *chunks, event({}, "tool_calls"), DONE)

    return play


def endless(piece: bytes, *before: bytes) -> Play:
    """The same piece again and again, 64 KiB at a time."""
    block = piece * (65_536 // len(piece) + 1)
    return lambda asked: itertools.chain(before or (head(),), itertools.repeat(block))


def dripping(pieces: Callable[[], Iterator[bytes]], pause: float, *before: bytes) -> Play:
    """Each piece after a pause."""

    def play(asked: Asked) -> Iterator[bytes | float]:
        yield from before or (head(),)
        for piece in pieces():
            yield pause
            yield piece

    return play


def echoing(answer: Callable[[str], bytes | tuple[bytes, ...]]) -> Play:
    """An answer made of the key that came with the question; once tools have answered a fine end."""

    def play(asked: Asked) -> Pieces:
        if asked.answered:
            return (head(), FINE_STREAM)
        made = answer(asked.key)
        return made if isinstance(made, tuple) else (made,)

    return play
