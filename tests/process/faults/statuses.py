"""Answers with another status than 200: the status, the code and the wording of each decide."""

from __future__ import annotations

from typing import Any

from tests.process.faults.row import CAP, asked, fails, retried
from tests.process.faults.saying import http, page

INVALID = ("invalid_request", ".invalid_request_error")
SERVER = ("provider_error", ".server_error")

STATUSES = (
    fails("301", http(301, location="http://x/"), "invalid_request", "http_301", 301, user_action="settings"),
    fails("400", "400", *INVALID, 400),
    # A page comes from a proxy, which does not know what a valid request is.
    retried("400-page", page(400), "provider_error", "http_400", 400),
    fails("401", "401", "authentication", ".invalid_api_key", 401),
    fails("402", "402", "quota_exhausted", ".invalid_request_error", 402),
    fails("403", "403", "permission", ".permission_denied", 403),
    fails("404-model", "404", "not_found", ".model_not_found", 404),
    fails("404-address", "echo", "not_found", ".unknown_url", 404, provider={"base_url": "{url}/v2"}, calls=0,
          request=None),
    fails("413", "413", *INVALID, 413),
    retried("500", "500", *SERVER, 500),
    retried("502-page", page(502), "provider_error", "http_502", 502),
    retried("502-gzip", http(502, "\x1f\x8b", content_encoding="gzip"), "provider_error", "http_502", 502),
    retried("503", "503-*-2", *SERVER, 503, delays=asked(2)),
    retried("520-page", page(520), "provider_error", "http_520", 520),
)  # fmt: skip

DEFAULT: Any = {"agent": {"retry": None}}
ALONE: Any = {"agent": {"retry": {"patience": 0}}}
"""The same, without the wait for a provider that answers nobody: each row has one of its own."""
FIVE: Any = {**ALONE, "tries": 5, "delays": ((0, 0.5), (0, 1), (0, 2), (0, 4)), "note": "Gave up after 5 attempts."}

BY_DEFAULT = (
    retried("500-by-default", "500", *SERVER, 500, **FIVE),
    retried("reset-by-default", "reset", "connection", "connection_reset", **FIVE),
    fails("401-by-default", "401", "authentication", ".invalid_api_key", 401, **DEFAULT),
)
"""With the policy of a run that brings none: each delay is drawn from zero up to its longest."""

QUOTAS = (
    fails("quota", "quota", "quota_exhausted", ".insufficient_quota", 429),
    fails("budget", "budget", "quota_exhausted", ".budget_exceeded", 400),
)

LIMITED = ("rate_limited", "http_429", 429)
EXCEEDED = ("rate_limited", ".rate_limit_exceeded", 429)

LIMITS = (
    retried("429", "429", *EXCEEDED),
    retried("429-seconds", "429-*-2", *EXCEEDED, delays=asked(2)),
    retried("429-zero", http(429, retry_after="0"), *LIMITED),
    # Less than the policy's own delay: both hold, so the longer one does.
    retried("429-less", http(429, retry_after="0.2"), *LIMITED),
    fails("429-beyond-the-cap", "429-*-5", *EXCEEDED, retryable=True,
          note=f"Gave up: it asks to wait 5 s, the policy allows {CAP:g} s."),
    retried("529", "529", "rate_limited", ".overloaded_error", 529),
)  # fmt: skip

WINDOWS = (
    fails("context", "context", "context_window", ".context_length_exceeded", 400),
    fails("window", "window-1", "context_window", ".context_length_exceeded", 400),
)
