"""A reply as bytes in Anthropic's Messages: one JSON document, or SSE events; and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from .grammar import ModelScript
from .reply import Call, Reply
from .thoughts import CALLER, call_id, redacted, search, signature
from .wire import Event, grouped

STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "pause": "pause_turn",
    "window": "model_context_window_exceeded",
}
"""Stop reasons, by the ends that they stand for."""
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The type of an error, by its status; other statuses of the server have `api_error`."""
REFUSAL = "This request was blocked under our usage policy: it could help to attack computers."
"""Why an answer is refused."""
_WORDS = {"401": "invalid x-api-key", "529": "Overloaded"}
"""Messages of errors, by their status."""
SPENT = {"error_visibility": "user_facing", "error_code": "enforced_spend_limit_reached"}
FAULTS = {
    "quota": (429, "This request would exceed your organization's monthly limit."),
    "budget": (400, "You have reached your specified API usage limits. You will regain access on 2027-01-01."),
    "context": (400, "prompt is too long: 9000 tokens > 8192 maximum"),
    "policy": (400, "Output blocked by content filtering policy"),
}
"""Faults that are more than a status."""


def document(reply: Reply) -> bytes:
    """The message of a request that does not stream."""
    return orjson.dumps({**_head(reply), **_stop(reply), "content": list(_blocks(reply)), "usage": _whole_usage(reply)})


def empty_document(reply: Reply) -> bytes:
    """A message without content."""
    return orjson.dumps({**_head(reply), **_stop(reply), "content": [], "usage": _whole_usage(reply)})


def events(reply: Reply, script: ModelScript, *, include_usage: bool) -> Iterator[Event]:
    """The SSE events of a reply: a start, each block with its pieces, what it took, the end."""
    yield _start(reply), 0
    for index, block in enumerate(_blocks(reply)):
        match block["type"]:
            case "thinking":
                first, more = block | {"thinking": "", "signature": ""}, _thinking(reply, script, block["signature"])
            case "text":
                first, more = block | {"text": ""}, _text(reply, script)
            case "tool_use":
                call = reply.calls[index - _before_calls(reply)]
                first, more = block | {"input": {}}, _arguments(call, script.args_split)
            case "server_tool_use":
                piece = {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
                first, more = block | {"input": {}}, iter([(piece, 1)])
            case _:
                first, more = block, iter(())
        yield event("content_block_start", index=index, content_block=first), 0
        for delta, tokens in more:
            yield event("content_block_delta", index=index, delta=delta), tokens
        yield event("content_block_stop", index=index), 0
    yield event("message_delta", delta=_stop(reply), usage=_usage(reply)), 0
    yield event("message_stop"), 0


def empty_events(reply: Reply) -> Iterator[Event]:
    """A stream without a block."""
    yield _start(reply), 0
    yield event("message_delta", delta=_stop(reply), usage=_usage(reply)), 0
    yield event("message_stop"), 0


def broken_events(reply: Reply) -> Iterator[Event]:
    """A good first event, then one whose JSON ends in the middle."""
    yield _start(reply), 0
    yield b'event: content_block_start\ndata: {"type":"content_block_sta\n\n', 0


def event(kind: str, **more: Any) -> bytes:
    """An event with its name, which stands in it, too."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **more}))


def error(
    status: int, message: str, code: str | None = None, param: str | None = None, details: object = None
) -> bytes:
    """An error's body."""
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    body: dict[str, Any] = {"type": kind, "message": message}
    body |= {"details": details} if details else {}
    return orjson.dumps({"type": "error", "error": body, "request_id": None})


def refused(name: str) -> tuple[int, bytes] | None:
    """Status and body of a fault that is an error answer; None for every other fault."""
    if name.isdigit():
        return int(name), error(int(name), _WORDS.get(name, f"Error {name}."))
    if name not in FAULTS:
        return None
    status, message = FAULTS[name]
    return status, error(status, message, details=SPENT if name == "quota" else None)


def window_exceeded(window: int, tokens: int) -> bytes:
    """The body for a prompt of more than `window` tokens."""
    return error(400, f"prompt is too long: {tokens} tokens > {window} maximum")


def interrupted(*, overloaded: bool) -> tuple[bytes, bytes]:
    """An error in the middle of an answer: as an event, and as a document."""
    body = error(529, "Overloaded") if overloaded else error(500, "Internal server error")
    return b"event: error\ndata: " + body + b"\n\n", body


def _head(reply: Reply) -> dict[str, Any]:
    about = {"id": reply.id.replace("chatcmpl-", "msg_"), "type": "message", "role": "assistant"}
    return {**about, "model": reply.model, "container": None}


def _start(reply: Reply) -> bytes:
    usage = {**_whole_usage(reply), "output_tokens": 1}
    begun: dict[str, Any] = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": usage,
    }
    return event("message_start", message={**_head(reply), **begun}) + event("ping")


def _stop(reply: Reply) -> dict[str, Any]:
    stop = STOPS[reply.finish_reason]
    details = {"type": "refusal", "category": "cyber", "explanation": REFUSAL} if stop == "refusal" else None
    return {"stop_reason": stop, "stop_sequence": None, "stop_details": details}


def _usage(reply: Reply) -> dict[str, Any]:
    """With breakpoints, half of the prompt is read from the cache, and a quarter is written into it."""
    prompt = reply.usage["prompt_tokens"]
    cached, written = (prompt // 2, prompt // 4) if reply.cached else (0, 0)
    return {
        "input_tokens": prompt - cached - written,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
        "output_tokens": reply.usage["completion_tokens"],
        "output_tokens_details": {"thinking_tokens": len(reply.reasoning)},
        "server_tool_use": None,
    }


def _whole_usage(reply: Reply) -> dict[str, Any]:
    """With what the end of a stream does not repeat."""
    return {**_usage(reply), "cache_creation": None, "inference_geo": None, "service_tier": "standard"}


def _before_calls(reply: Reply) -> int:
    return 2 if reply.reasoning else 0


def _blocks(reply: Reply) -> Iterator[dict[str, Any]]:
    """The thoughts of the model, signed and hidden; then its words, or its calls."""
    if reply.reasoning:
        thinking = "".join(reply.reasoning)
        yield {"type": "thinking", "thinking": thinking, "signature": signature(thinking)}
        yield {"type": "redacted_thinking", "data": redacted(thinking)}
    if reply.tokens:
        yield {"type": "text", "text": "".join(reply.tokens), "citations": None}
    if reply.search is not None:
        yield search(reply.digest, reply.search)
    for call in reply.calls:
        made = call_id(reply.model, reply.digest, call.id, thinks=bool(reply.reasoning))
        try:
            orjson.loads(call.arguments)
            arguments: Any = orjson.Fragment(call.arguments)
        except orjson.JSONDecodeError:
            arguments = {}
        yield {"type": "tool_use", "id": made, "name": call.name, "input": arguments, "caller": CALLER}


def _thinking(reply: Reply, script: ModelScript, signed: str) -> Iterator[tuple[dict[str, str], int]]:
    for text, count in grouped(reply.reasoning, script.chunk):
        yield {"type": "thinking_delta", "thinking": text}, count
    yield {"type": "signature_delta", "signature": signed}, 0


def _text(reply: Reply, script: ModelScript) -> Iterator[tuple[dict[str, str], int]]:
    for text, count in grouped(reply.tokens, script.chunk):
        yield {"type": "text_delta", "text": text}, count


def _arguments(call: Call, split: int | None) -> Iterator[tuple[dict[str, str], int]]:
    """In one piece, or in fragments of `split` characters."""
    size = split or len(call.arguments) or 1
    for at in range(0, len(call.arguments), size):
        yield {"type": "input_json_delta", "partial_json": call.arguments[at : at + size]}, 1
