"""Faults of providers that speak OpenAI's Responses: in their own words, with the same ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from tests.process.faults.everywhere import elsewhere
from tests.process.faults.row import STREAM, WHOLE, Row, asked, completes, fails, recovers, retried, stops, words
from tests.process.faults.saying import SSE, Raw, Told, http

RESPONSES: Mapping[str, Any] = {"protocol": "responses"}
CALCULATOR = ("calculator",)
FINE = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Fine."}]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "calculator"}
CALLED = CALL | {"arguments": '{"expression":"1 + 1"}'}
TURN = {"script": "raw@1+say-5", "tools": CALCULATOR, "tries": 2, "output": words(5)}
TOLD = {"told_to_model": "invalid_tool_call", "tools": CALCULATOR, "tries": 2, "output": words(5)}

SERVER = ("provider_error", ".server_error")
BAD = ("provider_error", "bad_model_response", 200)
TRUNCATED = ("connection", "stream_truncated", 200)


def response(*items: Mapping[str, Any], status: str = "completed", ends: bool = True, **more: Any) -> Told:
    """A response of these items; without their ends, they were cut off."""
    whole = {"status": status, "output": items, "usage": {"input_tokens": 1, "output_tokens": 1}, **more}

    def told(stream: bool) -> Raw:
        if not stream:
            return http(200, whole)
        return http(200, "".join(_events(items, whole, ends)), content_type=SSE)

    return told


def _events(items: tuple[Mapping[str, Any], ...], whole: Mapping[str, Any], ends: bool) -> Iterator[str]:
    yield _event("response.created", response={"status": "in_progress", "output": []})
    for index, item in enumerate(items):
        yield _event("response.output_item.added", output_index=index, item=item)
        if ends:
            yield _event("response.output_item.done", output_index=index, item=item)
    yield _event(f"response.{whole['status']}", response=whole)


def _event(kind: str, **more: Any) -> str:
    return f"event: {kind}\ndata: {orjson.dumps({'type': kind, **more}).decode()}\n\n"


def failed(code: str) -> Told:
    """A response that failed."""
    return response(status="failed", error={"code": code, "message": "…"})


STATUSES = (
    fails("400", "400", "invalid_request", ".invalid_request_error", 400),
    fails("401", "401", "authentication", ".invalid_api_key", 401),
    fails("403", "403", "permission", ".permission_denied", 403),
    fails("404", "404", "not_found", ".model_not_found", 404),
    retried("500", "500", *SERVER, 500),
    retried("529", "529", "rate_limited", ".overloaded_error", 529),
    retried("429", "429", "rate_limited", ".rate_limit_exceeded", 429),
    retried("429-seconds", "429-*-2", "rate_limited", ".rate_limit_exceeded", 429, delays=asked(2)),
    fails("quota", "quota", "quota_exhausted", ".insufficient_quota", 429),
    fails("window", "window-1", "context_window", ".context_length_exceeded", 400),
    stops("policy", "policy", "content_filter"),
)

BROKEN = (
    retried("reset", "reset", "connection", "connection_reset"),
    retried("cut", "say-20+rate-10+cut-*-15", *TRUNCATED, forms=STREAM, withdrawn=True),
    retried("cut-in-arguments", "tool-1+args-split-3+cut-*-4", *TRUNCATED, forms=STREAM, tools=CALCULATOR),
    retried("cut-whole", "say-20+cut", *TRUNCATED, forms=WHOLE),
    retried("short", "short", *TRUNCATED, forms=STREAM),
    retried("bad-json", "badjson", *BAD),
    retried("empty", "empty", "provider_error", "empty_completion", 200),
    retried("failed", failed("server_error"), *SERVER, 200),
    fails("failed-prompt", failed("invalid_prompt"), "invalid_request", ".invalid_prompt", 200),
    retried("error-in-stream", "say-20+rate-10+errorchunk-*-15", *SERVER, 200, forms=STREAM, withdrawn=True),
)

ENDS = (
    stops("filter", "say-9+filter", "content_filter", output="w1 w2 w3"),
    stops("length", "say-40", "max_tokens", output=words(16), agent={"max_output_tokens": 16}),
    completes("call", response(CALLED), **TURN),
    completes("bad-arguments", "tool-1+badargs-1+say-5", **TOLD),
    completes("unknown-tool", "tool-1+unknowntool-1+say-5", **TOLD),
)

RECOVERIES = (recovers(BROKEN[1], "say-20+rate-25+cut-2-15", said=20),)

_OWN = tuple(
    replace(row, name=f"responses-{row.name}", provider={**RESPONSES, **row.provider})
    for row in (*STATUSES, *BROKEN, *ENDS, *RECOVERIES)
)
ROWS: tuple[Row, ...] = (*_OWN, *elsewhere(_OWN, "responses", RESPONSES))
