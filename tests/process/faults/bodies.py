"""Answers with status 200 that are no completion, and errors that hide in them."""

from __future__ import annotations

from tests.process.faults.row import STREAM, WHOLE, fails, retried, stops
from tests.process.faults.saying import (
    DONE,
    FINE,
    HEAD,
    SSE,
    completion,
    events,
    http,
    page,
    reported,
    wire,
)

BAD = ("provider_error", "bad_model_response", 200)
TRUNCATED = ("connection", "stream_truncated", 200)
EMPTY = ("provider_error", "empty_completion", 200)
GZIP = "\x1f\x8b\x08 is not what it says"
CALCULATOR = ("calculator",)

MALFORMED = (
    retried("bad-json", "badjson", *BAD),
    retried("html", "html", *BAD),
    retried("html-as-stream", page(200, SSE), *BAD),
    retried("gzip", http(200, GZIP, content_encoding="gzip"), *BAD),
    retried("invalid-utf-8", wire(*HEAD, "Content-Type: text/event-stream", "", 'data: {"id": "\xff\xfe"}', "", ""),
            *TRUNCATED, request="req-wire", forms=STREAM),
    retried("invalid-utf-8", wire(*HEAD, "Content-Type: application/json", "", '{"id": "\xff\xfe"}'),
            *EMPTY, request="req-wire", forms=WHOLE),
    retried("finish-without-calls", completion(FINE, "tool_calls"), *BAD, tools=CALCULATOR),
    # Another try would most likely bring the same flood, and each costs its full length.
    fails("huge", "huge-60000", "provider_error", "response_too_large", 200, provider={"max_response_bytes": 20_000},
          user_action="settings"),
)  # fmt: skip

NOTHING = (
    # An answer says when it ends. One without a byte did not: it was cut off before the first.
    retried("empty-body", http(200), *TRUNCATED),
    retried("only-done", events(DONE), *EMPTY, forms=STREAM),
    retried("no-choices", "empty", *EMPTY),
    retried("204", http(204), "provider_error", "http_204", 204),
    retried("103-then-nothing", wire("HTTP/1.1 103 Early Hints", "", ""), "connection", "server_disconnected"),
)

IN_A_200 = (
    retried("error-in-stream", "say-20+rate-10+errorchunk-*-15", "provider_error", ".server_error", 200, forms=STREAM,
            withdrawn=True),
    retried("error-in-stream", "errorchunk", "provider_error", ".server_error", 200, forms=WHOLE),
    retried("200-limit", reported({"type": "rate_limit_error"}), "rate_limited", ".rate_limit_error", 200),
    fails("200-key", reported({"code": "invalid_api_key"}), "authentication", ".invalid_api_key", 200),
    stops("200-policy", reported({"code": "content_filter"}), "content_filter"),
)  # fmt: skip
