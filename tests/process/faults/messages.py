"""Faults of providers that speak Anthropic's Messages: in their own words, with the same ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from tests.process.faults.everywhere import elsewhere
from tests.process.faults.row import (
    STREAM,
    WHOLE,
    Row,
    asked,
    completes,
    fails,
    recovers,
    retried,
    stops,
    words,
)
from tests.process.faults.saying import HEAD, SSE, Raw, Told, http, wire

MESSAGES: Mapping[str, Any] = {"protocol": "anthropic", "max_output_tokens": 4096}
HASTY = {"timeouts": {"first_token": 1.0, "idle": 1.0, "total": 20.0}}
CALCULATOR = ("calculator",)
FINE = {"type": "text", "text": "Fine."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "calculator", "input": {"expression": "1 + 1"}}
TURN = {"script": "raw@1+say-5", "tools": CALCULATOR, "tries": 2, "output": words(5)}

INVALID = ("invalid_request", ".invalid_request_error")
SERVER = ("provider_error", ".api_error")
BAD = ("provider_error", "bad_model_response", 200)
TRUNCATED = ("connection", "stream_truncated", 200)
LIMITED = ("rate_limited", ".rate_limit_error", 429)
OVERLOADED = ("rate_limited", ".overloaded_error")
WINDOW = ("context_window", ".invalid_request_error", 400)


def message(*blocks: Mapping[str, Any], stop: str = "end_turn", ends: bool = True) -> Told:
    """An answer of these blocks; without their ends, they were cut off."""

    def told(stream: bool) -> Raw:
        if not stream:
            return http(200, {"content": blocks, "stop_reason": stop, "usage": {"input_tokens": 1, "output_tokens": 1}})
        return http(200, "".join(_events(blocks, stop, ends)), content_type=SSE)

    return told


def _events(blocks: tuple[Mapping[str, Any], ...], stop: str, ends: bool) -> Iterator[str]:
    yield _event("message_start", message={"usage": {"input_tokens": 1, "output_tokens": 1}})
    for index, block in enumerate(blocks):
        yield _event("content_block_start", index=index, content_block=block)
        if ends:
            yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 1})
    yield _event("message_stop")


def _event(kind: str, **more: Any) -> str:
    return f"event: {kind}\ndata: {orjson.dumps({'type': kind, **more}).decode()}\n\n"


STATUSES = (
    fails("400", "400", *INVALID, 400),
    fails("401", "401", "authentication", ".authentication_error", 401),
    fails("402", "402", "quota_exhausted", ".billing_error", 402),
    fails("403", "403", "permission", ".permission_error", 403),
    fails("404", "404", "not_found", ".not_found_error", 404),
    fails("413", "413", "context_window", ".request_too_large", 413),
    retried("500", "500", *SERVER, 500),
    retried("529", "529", *OVERLOADED, 529),
    retried("429", "429", *LIMITED),
    retried("429-seconds", "429-*-2", *LIMITED, delays=asked(2)),
    # A limit of a month has the status of one of a minute, and one that was set by oneself has another one.
    fails("quota", "quota", "quota_exhausted", ".enforced_spend_limit_reached", 429),
    fails("context", "context", *WINDOW),
    fails("window", "window-1", *WINDOW),
    stops("policy", "policy", "content_filter"),
)  # fmt: skip

BROKEN = (
    retried("reset", "reset", "connection", "connection_reset"),
    retried("cut", "say-20+rate-10+cut-*-15", *TRUNCATED, forms=STREAM, withdrawn=True),
    retried("cut-in-arguments", "tool-1+args-split-3+cut-*-5", *TRUNCATED, forms=STREAM, tools=CALCULATOR),
    retried("cut", "say-20+cut", *TRUNCATED, forms=WHOLE),
    retried("short", "short", *TRUNCATED, forms=STREAM),
    retried("hang", "hang", "timeout", "first_token_timeout", provider=HASTY),
    retried(
        "stall", "say-20+rate-50+stall-*-15", "timeout", "idle_timeout", 200, provider=HASTY, forms=STREAM,
        withdrawn=True,
    ),
    retried("bad-json", "badjson", *BAD),
    retried(
        "invalid-utf-8", wire(*HEAD, "Content-Type: application/json", "", '{"id": "\xff\xfe"}'), *BAD, forms=WHOLE,
        request="req-wire",
    ),
    retried("empty", "empty", "provider_error", "empty_completion", 200),
    retried("stop-without-calls", message(FINE, stop="tool_use"), *BAD),
    retried("error-in-stream", "say-20+rate-10+errorchunk-*-15", *SERVER, 200, forms=STREAM, withdrawn=True),
    retried("overloaded", "say-20+rate-10+overloaded-*-15", *OVERLOADED, 200, forms=STREAM, withdrawn=True),
    retried("overloaded", "overloaded", *OVERLOADED, 200, forms=WHOLE),
    fails(
        "outgrown", message(FINE, stop="model_context_window_exceeded"), "context_window",
        ".model_context_window_exceeded", 200,
    ),
)  # fmt: skip

ENDS = (
    stops("filter", "say-9+filter", "content_filter", output="w1 w2 w3"),
    stops("length", "say-9", "max_tokens", output="w1 w2", agent={"max_output_tokens": 2}),
    stops("length-in-a-call", message(CALL, stop="max_tokens", ends=False), "max_tokens", tools=CALCULATOR),
    completes("call", message(CALL, stop="tool_use"), **TURN),
    completes("call-without-an-end", message(CALL, stop="tool_use", ends=False), forms=STREAM, **TURN),
    completes(
        "bad-arguments", "tool-1+badargs-1+say-5", told_to_model="invalid_tool_call", tools=CALCULATOR, tries=2,
        output=words(5), forms=STREAM,
    ),
    completes(
        "unknown-tool", "tool-1+unknowntool-1+say-5", told_to_model="invalid_tool_call", tools=CALCULATOR, tries=2,
        output=words(5),
    ),
)  # fmt: skip

RECOVERIES = tuple(
    recovers(row, script, said=20 if "20" in script else 5)
    for name, script in {
        "overloaded": "say-20+rate-25+overloaded-2-15",
        "cut": "say-20+rate-25+cut-2-15",
    }.items()
    for row in (*STATUSES, *BROKEN)
    if row.name == name and (True in row.forms)
)

_OWN = tuple(
    replace(row, name=f"messages-{row.name}", provider={**MESSAGES, **row.provider})
    for row in (*STATUSES, *BROKEN, *ENDS, *RECOVERIES)
)
ROWS: tuple[Row, ...] = (*_OWN, *elsewhere(_OWN, "messages", MESSAGES))
