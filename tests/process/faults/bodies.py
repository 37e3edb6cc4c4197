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
    retried("gzip-as-stream", http(200, GZIP, content_encoding="gzip", content_type=SSE), *BAD),
    retried("not-a-stream", http(200, "choices=1&content=fine", content_type=SSE), *BAD),
    retried("invalid-utf-8", wire(*HEAD, "Content-Type: text/event-stream", "", 'data: {"id": "\xff\xfe"}', "", ""),
            *TRUNCATED, request="req-wire", forms=STREAM),
    retried("invalid-utf-8", wire(*HEAD, "Content-Type: application/json", "", '{"id": "\xff\xfe"}'),
            *EMPTY, request="req-wire", forms=WHOLE),
    retried("a-list", events([1, 2], DONE), *BAD, forms=STREAM),
    retried("a-list", http(200, [1, 2]), *BAD, forms=WHOLE),
    retried("content-is-a-number", completion({"content": 7}), *EMPTY),
    retried("finish-without-calls", completion(FINE, "tool_calls"), *BAD, tools=CALCULATOR),
    retried("finish-error", completion(FINE, "error"), "provider_error", "provider_error", 200),
    # Another try would most likely bring the same flood, and each costs its full length.
    fails("huge", "huge-60000", "provider_error", "response_too_large", 200, provider={"max_response_bytes": 20_000},
          user_action="settings"),
)  # fmt: skip

NOTHING = (
    # An answer says when it ends. One without a byte did not: it was cut off before the first.
    retried("empty-body", http(200), *TRUNCATED),
    retried("empty-stream", http(200, content_type=SSE), *TRUNCATED),
    retried("only-done", events(DONE), *EMPTY, forms=STREAM),
    retried("no-choices", "empty", *EMPTY),
    retried("null-choices", http(200, {"choices": None}), *EMPTY, forms=WHOLE),
    retried("null-message", completion(None), *EMPTY),
    retried("null-content", completion({"role": "assistant", "content": None}), *EMPTY),
    retried("204", http(204), "provider_error", "http_204", 204),
    retried("101", wire("HTTP/1.1 101 Switching", "", ""), "provider_error", "http_101", 101, request=None),
    retried("103-then-nothing", wire("HTTP/1.1 103 Early Hints", "", ""), "connection", "server_disconnected"),
)

IN_A_200 = (
    retried("error-in-stream", "say-20+rate-50+errorchunk-*-15", "provider_error", ".server_error", 200, forms=STREAM,
            withdrawn=True),
    retried("error-in-stream", "errorchunk", "provider_error", ".server_error", 200, forms=WHOLE),
    retried("event-error", events('event: error\ndata: {"message": "Try later", "type": "overloaded"}\n\n'),
            "provider_error", ".overloaded", 200, forms=STREAM),
    retried("200-limit", reported({"type": "rate_limit_error"}), "rate_limited", ".rate_limit_error", 200),
    retried("200-overloaded", reported({"type": "overloaded_error"}), "rate_limited", ".overloaded_error", 200),
    retried("200-with-429", reported({"code": 429, "message": "No."}), "rate_limited", "http_429", 200),
    retried("200-with-503", reported({"code": 503, "message": "No."}), "provider_error", "http_503", 200),
    retried("200-in-words", reported("upstream failed"), "provider_error", "error_in_answer", 200),
    fails("200-key", reported({"code": "invalid_api_key"}), "authentication", ".invalid_api_key", 200),
    fails("200-quota", reported({"code": "insufficient_quota"}), "quota_exhausted", ".insufficient_quota", 200),
    fails("200-context", reported({"code": "context_length_exceeded"}), "context_window", ".context_length_exceeded",
          200),
    stops("200-policy", reported({"code": "content_filter"}), "content_filter"),
)  # fmt: skip
