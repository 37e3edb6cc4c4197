"""Answers with another status than 200: the status, the code and the wording of each decide."""

from __future__ import annotations

from typing import Any

from tests.process.faults.row import CAP, SECOND, asked, fails, retried
from tests.process.faults.saying import http, page, refusal

INVALID = ("invalid_request", ".invalid_request_error")
SERVER = ("provider_error", ".server_error")

STATUSES = (
    fails("301", http(301, location="http://x/"), "invalid_request", "http_301", 301, user_action="settings"),
    fails("307", http(307, location="/v2"), "invalid_request", "http_307", 307, user_action="settings"),
    fails("400", "400", *INVALID, 400),
    # A page comes from a proxy, which does not know what a valid request is.
    retried("400-page", page(400), "provider_error", "http_400", 400),
    fails("400-key", refusal(400, "API key not valid. Please pass one."), "authentication", "http_400", 400),
    fails("401", "401", "authentication", ".invalid_api_key", 401),
    fails("402", "402", "quota_exhausted", ".invalid_request_error", 402),
    fails("403", "403", "permission", ".permission_denied", 403),
    fails("404-model", "404", "not_found", ".model_not_found", 404),
    fails("404-address", "echo", "not_found", ".unknown_url", 404, provider={"base_url": "{url}/v2"}, calls=0,
          request=None),
    fails("405", "405", *INVALID, 405),
    # A lock inside the provider, which its own clients retry, too.
    retried("409", "409", "provider_error", ".invalid_request_error", 409),
    fails("410", "410", "not_found", ".invalid_request_error", 410),
    fails("413", "413", *INVALID, 413),
    fails("413-page", page(413), "invalid_request", "http_413", 413),
    fails("415", "415", *INVALID, 415),
    fails("422", "422", *INVALID, 422),
    fails("451", "451", "permission", ".invalid_request_error", 451),
    retried("500", "500", *SERVER, 500),
    retried("501", "501", *SERVER, 501),
    retried("502", "502", *SERVER, 502),
    retried("502-page", page(502), "provider_error", "http_502", 502),
    retried("502-gzip", http(502, "\x1f\x8b", content_encoding="gzip"), "provider_error", "http_502", 502),
    retried("503", "503-*-2", *SERVER, 503, delays=asked(2)),
    retried("504", "504", *SERVER, 504),
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
    fails("credit", refusal(400, "Your credit balance is too low."), "quota_exhausted", "http_400", 400),
)

LIMITED = ("rate_limited", "http_429", 429)
EXCEEDED = ("rate_limited", ".rate_limit_exceeded", 429)
TOKENS_A_MINUTE = (
    "Rate limit reached for gpt-x in organization org-1 on tokens per min (TPM): Limit 30000, Used 29000, Requested "
    "2000. Please try again in 2s. Add a payment method to your account to increase your rate limit: visit "
    "https://platform.example/account/billing."
)
RETRY_INFO = {
    "code": 429,
    "status": "RESOURCE_EXHAUSTED",
    "message": "You exceeded your current quota.",
    "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.8s"}],
}

LIMITS = (
    retried("429", "429", *EXCEEDED),
    retried("429-seconds", "429-*-2", *EXCEEDED, delays=asked(2)),
    # A date has whole seconds: 1 to 2 of them from when it was sent.
    retried("429-date", "429date-*-1", *EXCEEDED, delays=((1.0, 2.2), (SECOND, 2.2))),
    retried("429-ms", http(429, retry_after_ms="1700"), *LIMITED, delays=asked(1.7)),
    # Who sends both means the finer one.
    retried("429-both", http(429, retry_after_ms="1600", retry_after="9"), *LIMITED, delays=asked(1.6)),
    # What is no time asks for nothing, and so does a time that has passed.
    retried("429-junk", http(429, retry_after="soon"), *LIMITED),
    retried("429-zero", http(429, retry_after="0"), *LIMITED),
    retried("429-past", http(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"), *LIMITED),
    # Less than the policy's own delay: both hold, so the longer one does.
    retried("429-less", http(429, retry_after="0.2"), *LIMITED),
    fails("429-beyond-the-cap", "429-*-5", *EXCEEDED, retryable=True,
          note=f"Gave up: it asks to wait 5 s, the policy allows {CAP:g} s."),
    retried("429-tokens", refusal(429, TOKENS_A_MINUTE, None, "tokens"), "rate_limited", ".tokens", 429,
            delays=asked(2)),
    retried("429-in-words", http(429, "slow down"), *LIMITED),
    retried("429-retry-info", http(429, {"error": RETRY_INFO}), "rate_limited", ".resource_exhausted", 429,
            delays=asked(1.8)),
    retried("529", "529", "rate_limited", ".overloaded_error", 529),
)  # fmt: skip

TOO_LONG = {
    "openai": (400, "This model's maximum context length is 4097 tokens. However, your messages resulted in 5000."),
    "anthropic": (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    "anthropic-output": (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    "google": (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    "bedrock": (400, "Input is too long for requested model."),
    "llama.cpp": (400, "the request exceeds the available context size, try increasing it"),
    "lm-studio": (400, "The number of tokens to keep from the initial prompt is greater than the context length."),
    "tgi": (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000"),
    "copilot": (400, "prompt token count of 140000 exceeds the limit of 128000"),
    "zai": (400, "Prompt exceeds max length"),
    "gateway": (500, "litellm.APIError: the maximum context length is 4096 tokens"),
    "groq": (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000, please "
             "reduce your message size and try again."),
    # Above the whole limit of a minute: waiting cannot help, a shorter prompt can.
    "minute": (429, "Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 40000. The input or "
               "output tokens must be reduced in order to run successfully."),
}  # fmt: skip

WINDOWS = (
    fails("context", "context", "context_window", ".context_length_exceeded", 400),
    fails("window", "window-1", "context_window", ".context_length_exceeded", 400),
    *(
        fails(f"too-long-{who}", refusal(status, words), "context_window", f"http_{status}", status)
        for who, (status, words) in TOO_LONG.items()
    ),
)
