"""A reply as bytes in OpenAI's Responses: one JSON document, or SSE events; and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import orjson

from .grammar import ModelScript
from .reply import Reply
from .thoughts import encrypted, response_call_id
from .wire import Event, error, grouped

CREATED = 1_760_000_000
REASONS = {"length": "max_output_tokens", "window": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is incomplete."""


def document(reply: Reply) -> bytes:
    """The response of a request that does not stream."""
    return orjson.dumps(_whole(reply, list(_items(reply))))


def empty_document(reply: Reply) -> bytes:
    """A response without items."""
    return orjson.dumps(_whole(reply, []))


def events(reply: Reply, script: ModelScript, *, include_usage: bool) -> Iterator[Event]:
    """The SSE events of a reply: a start, each item with its pieces, the end."""
    numbers = count()
    yield _start(reply, numbers), 0
    items = list(_items(reply))
    for index, item in enumerate(items):
        yield event(numbers, "response.output_item.added", output_index=index, item=_begun(item)), 0
        where = {"item_id": item["id"], "output_index": index}
        match item["type"]:
            case "reasoning":
                yield from _reasoning(numbers, reply, script, item, where)
            case "message":
                yield from _message(numbers, reply, script, item, where)
            case _:
                size = script.args_split or len(item["arguments"]) or 1
                for at in range(0, len(item["arguments"]), size):
                    piece = item["arguments"][at : at + size]
                    yield event(numbers, "response.function_call_arguments.delta", delta=piece, **where), 1
                function = {"name": item["name"], "arguments": item["arguments"]}
                yield event(numbers, "response.function_call_arguments.done", **function, **where), 0
        yield event(numbers, "response.output_item.done", output_index=index, item=item), 0
    yield _ending(numbers, reply, items), 0


def empty_events(reply: Reply) -> Iterator[Event]:
    """A stream without an item."""
    numbers = count()
    yield _start(reply, numbers), 0
    yield _ending(numbers, reply, []), 0


def broken_events(reply: Reply) -> Iterator[Event]:
    """A good first event, then one whose JSON ends in the middle."""
    yield _start(reply, count()), 0
    yield b'event: response.output_item.added\ndata: {"type":"response.output_item.ad\n\n', 0


def event(numbers: Iterator[int], kind: str, **more: Any) -> bytes:
    """An event with its name, which stands in it, too, and its number."""
    payload = {"type": kind, "sequence_number": next(numbers), **more}
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(payload))


def interrupted(*, overloaded: bool) -> tuple[bytes, bytes]:
    """An error in the middle of an answer: as an event, and as a document."""
    fault = {"code": "server_error", "message": "The server had an error while processing your request."}
    if overloaded:
        fault = {"code": "rate_limit_exceeded", "message": "The engine is currently overloaded."}
    body = error(fault["message"], "server_error", fault["code"])
    return event(count(9), "error", **fault, param=None), body


def _whole(reply: Reply, items: list[dict[str, Any]]) -> dict[str, Any]:
    reason = REASONS.get(reply.finish_reason)
    return {
        **_head(reply),
        "status": "incomplete" if reason else "completed",
        "completed_at": None if reason else CREATED,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": items,
        "usage": _usage(reply),
    }


def _head(reply: Reply) -> dict[str, Any]:
    return {
        "id": reply.id.replace("chatcmpl-", "resp_"),
        "object": "response",
        "created_at": CREATED,
        "completed_at": None,
        "model": reply.model,
        "error": None,
        "background": False,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": "auto"},
        "temperature": 1.0,
        "top_p": 1.0,
        "top_logprobs": 0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "service_tier": "default",
        "safety_identifier": None,
        "prompt_cache_key": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
        "store": False,
    }


def _start(reply: Reply, numbers: Iterator[int]) -> bytes:
    begun = {**_head(reply), "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    kinds = ("response.created", "response.in_progress")
    return b"".join(event(numbers, kind, response=begun) for kind in kinds)


def _ending(numbers: Iterator[int], reply: Reply, items: list[dict[str, Any]]) -> bytes:
    whole = _whole(reply, items)
    return event(numbers, f"response.{whole['status']}", response=whole)


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": len(reply.reasoning)},
        "total_tokens": reply.usage["total_tokens"],
    }


def _items(reply: Reply) -> Iterator[dict[str, Any]]:
    """The thoughts of the model, encrypted and in a summary; then its words, or its calls."""
    mark = reply.digest[:24]
    if reply.reasoning:
        identity, summary = f"rs_{mark}", [{"type": "summary_text", "text": "".join(reply.reasoning)}]
        sealed = encrypted(reply.model, identity, summary)
        yield {"id": identity, "type": "reasoning", "summary": summary, "encrypted_content": sealed}
    cut = "incomplete" if reply.finish_reason in REASONS else "completed"
    if reply.tokens:
        content = [_part("".join(reply.tokens))]
        yield {"id": f"msg_{mark}", "type": "message", "role": "assistant", "status": cut, "content": content}
    for index, call in enumerate(reply.calls):
        made = response_call_id(reply.model, reply.digest, index, thinks=bool(reply.reasoning))
        function = {"call_id": made, "name": call.name, "arguments": call.arguments}
        yield {"id": f"fc_{index:02}{mark}", "type": "function_call", "status": cut, **function}


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it begins."""
    match item["type"]:
        case "reasoning":
            return item | {"summary": [], "encrypted_content": ""}
        case "message":
            return item | {"content": [], "status": "in_progress"}
    return item | {"arguments": "", "status": "in_progress"}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _reasoning(
    numbers: Iterator[int], reply: Reply, script: ModelScript, item: dict[str, Any], where: dict[str, Any]
) -> Iterator[Event]:
    where = where | {"summary_index": 0}
    (part,) = item["summary"]
    yield event(numbers, "response.reasoning_summary_part.added", part=part | {"text": ""}, **where), 0
    for text, size in grouped(reply.reasoning, script.chunk):
        yield event(numbers, "response.reasoning_summary_text.delta", delta=text, **where), size
    yield event(numbers, "response.reasoning_summary_text.done", text=part["text"], **where), 0
    yield event(numbers, "response.reasoning_summary_part.done", part=part, **where), 0


def _message(
    numbers: Iterator[int], reply: Reply, script: ModelScript, item: dict[str, Any], where: dict[str, Any]
) -> Iterator[Event]:
    where = where | {"content_index": 0}
    (part,) = item["content"]
    yield event(numbers, "response.content_part.added", part=_part(""), **where), 0
    for text, size in grouped(reply.tokens, script.chunk):
        yield event(numbers, "response.output_text.delta", delta=text, logprobs=[], **where), size
    yield event(numbers, "response.output_text.done", text=part["text"], logprobs=[], **where), 0
    yield event(numbers, "response.content_part.done", part=part, **where), 0
