"""A reply as bytes: one JSON document, or SSE events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from .grammar import ModelScript
from .reply import Call, Reply

DONE = b"data: [DONE]\n\n"

ENDS = {"pause": "stop", "window": "length"}
"""Finish reasons here, for ends that other APIs have words of their own for."""

Event = tuple[bytes, int]
"""An SSE event and the number of tokens it carries, which paces it."""


def document(reply: Reply) -> bytes:
    """The `chat.completion` object of a request that does not stream."""
    content = None if reply.calls else "".join(reply.tokens)
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
    if reply.reasoning:
        message["reasoning_content"] = "".join(reply.reasoning)
    if reply.made.details:
        message["reasoning_details"] = [orjson.Fragment(detail) for detail in reply.made.details]
    if reply.made.extra:
        message["extra_content"] = orjson.Fragment(reply.made.extra)
    if reply.calls:
        message["tool_calls"] = [{**_call(call), **_extra(reply, i)} for i, call in enumerate(reply.calls)]
    return orjson.dumps(
        {
            "id": reply.id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": reply.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _end(reply)}],
            "usage": reply.usage,
        }
    )


def empty_document(reply: Reply) -> bytes:
    """A completion without choices."""
    return orjson.dumps(
        {
            "id": reply.id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": reply.model,
            "choices": [],
            "usage": reply.usage,
        }
    )


def events(reply: Reply, script: ModelScript, *, include_usage: bool) -> Iterator[Event]:
    """The SSE events of a reply: the role, the reasoning, the answer or the calls, the finish.

    The usage follows if asked for; `[DONE]` is not among them.
    """
    head, tail = _frame(reply, include_usage=include_usage)

    def event(delta: bytes, finish: bytes = b"null") -> bytes:
        return b'%b[{"index":0,"delta":%b,"finish_reason":%b}]%b' % (head, delta, finish, tail)

    yield event(b'{"role":"assistant","content":%b}' % (b"null" if reply.calls else b'""')), 0
    for text, count in grouped(reply.reasoning, script.chunk):
        yield event(b'{"reasoning_content":%b}' % orjson.dumps(text)), count
    for piece in reply.made.detail_pieces:
        yield event(b'{"reasoning_details":[%b]}' % piece.encode()), 0
    for text, count in grouped(reply.tokens, script.chunk):
        yield event(b'{"content":%b}' % orjson.dumps(text)), count
    for index, call in enumerate(reply.calls):
        for number, delta in enumerate(_call_deltas(index, call, script.args_split)):
            extra = {} if number else _extra(reply, index)
            yield event(b'{"tool_calls":[%b]}' % orjson.dumps({**delta, **extra})), 1
    if reply.made.extra:
        yield event(b'{"content":"","extra_content":%b}' % reply.made.extra.encode()), 0
    yield event(b"{}", orjson.dumps(_end(reply))), 0
    if include_usage:
        yield b'%b[],"usage":%b}\n\n' % (head, orjson.dumps(reply.usage)), 0


def empty_events(reply: Reply) -> Iterator[Event]:
    """A stream that carries no choice at all."""
    head, tail = _frame(reply, include_usage=False)
    yield head + b"[]" + tail, 0


def broken_events(reply: Reply) -> Iterator[Event]:
    """A good first event, then one whose JSON ends in the middle."""
    head, tail = _frame(reply, include_usage=False)
    yield head + b'[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]' + tail, 0
    yield head + b'[{"index":0,"delta":{"conte\n\n', 0


def error(message: str, kind: str, code: str | None, param: str | None = None) -> bytes:
    """An OpenAI error body."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _frame(reply: Reply, *, include_usage: bool) -> tuple[bytes, bytes]:
    """The bytes of a chunk before and after its choices, which are the same for a whole stream."""
    head = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":' % (
        orjson.dumps(reply.id),
        int(time.time()),
        orjson.dumps(reply.model),
    )
    return head, b',"usage":null}\n\n' if include_usage else b"}\n\n"


def grouped(tokens: list[str], size: int) -> Iterator[tuple[str, int]]:
    """So many tokens together, and how many they are."""
    left = iter(tokens)
    while group := list(islice(left, size)):
        yield "".join(group), len(group)


def _end(reply: Reply) -> str:
    return ENDS.get(reply.finish_reason, reply.finish_reason)


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _extra(reply: Reply, index: int) -> dict[str, orjson.Fragment]:
    extras = reply.made.call_extras
    extra = extras[index] if extras else None
    return {} if extra is None else {"extra_content": orjson.Fragment(extra)}


def _call_deltas(index: int, call: Call, split: int | None) -> Iterator[dict[str, Any]]:
    """A call in one delta, or its head followed by fragments of `split` characters."""
    if split is None:
        yield {"index": index, **_call(call)}
        return
    yield {"index": index, **_call(Call(call.id, call.name, ""))}
    for at in range(0, len(call.arguments), split):
        yield {"index": index, "function": {"arguments": call.arguments[at : at + split]}}
