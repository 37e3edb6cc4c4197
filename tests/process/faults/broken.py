"""Connections that fail, and answers that do not come in time."""

from __future__ import annotations

from tests.process.faults.row import STREAM, WHOLE, asked, fails, retried
from tests.process.faults.saying import HEAD, chunk, events, part_of_document, wire

HASTY = {"timeouts": {"first_token": 1.0, "idle": 1.0, "total": 20.0}}
BRIEF = {"timeouts": {"first_token": 20.0, "idle": 20.0, "total": 1.5}}
NOBODY = ".".join(["x" * 50] * 6)
"""Longer than a name can be: the resolver says no without asking anybody."""

CONNECTION = "connection"
REFUSED = ("connection", "connect_refused")
RESET = ("connection", "connection_reset")
CLOSED = ("connection", "server_disconnected")
TRUNCATED = ("connection", "stream_truncated", 200)

CONNECTIONS = (
    retried("refused", "echo", *REFUSED, provider={"base_url": "{closed}"}, calls=0),
    retried("no-host", "echo", CONNECTION, "dns", provider={"base_url": f"http://{NOBODY}/v1"}, calls=0,
            user_action="settings"),
    fails("impossible-host", "echo", "invalid_request", "invalid_url", calls=0, user_action="settings",
          provider={"base_url": f"http://{'x' * 64}.invalid/v1"}),
    retried("no-tls", "echo", CONNECTION, "tls", provider={"base_url": "{tls}"}, calls=0, user_action="settings"),
    retried("reset", "reset", *RESET),
    retried("no-answer", wire(""), *CLOSED),
    retried("half-a-head", wire("HTTP/1.1 200 OK", "Content-Ty"), *CLOSED),
    retried("reset-in-head", wire("HTTP/1.1 200 OK", "Content-Ty", then="reset"), *RESET),
    retried("not-http", wire("220 mail.example ESMTP", ""), CONNECTION, "protocol_error"),
    retried("reset-in-body", part_of_document('{"choices"', then="reset"), *TRUNCATED, request="req-wire"),
    retried("too-few-bytes", part_of_document('{"choices"'), *TRUNCATED, request="req-wire"),
    retried("bad-chunks", wire(*HEAD, "Transfer-Encoding: chunked", "", "no size", ""), CONNECTION, "protocol_error"),
    retried("cut", "say-20+rate-10+cut-*-15", *TRUNCATED, forms=STREAM, withdrawn=True),
    retried("cut", "say-20+cut", *TRUNCATED, forms=WHOLE),
    # The end of the connection is the end of the answer: streamed, it has no finish; as a document it does not parse.
    retried("short", "short", *TRUNCATED, forms=STREAM),
    retried("short", "short", "provider_error", "bad_model_response", 200, forms=WHOLE),
    # It began, if only with a sign of life, and did not get to the end.
    retried("only-keep-alives", events(": ping\n\n"), *TRUNCATED, forms=STREAM),
    retried("no-finish", events(chunk({"content": "It is"})), *TRUNCATED, forms=STREAM),
    retried("cut-in-arguments", "tool-1+args-split-3+cut-*-5", *TRUNCATED, tools=["calculator"]),
)  # fmt: skip

FIRST_TOKEN = ("timeout", "first_token_timeout")
TOTAL = ("timeout", "total_timeout")

TIMEOUTS = (
    retried("no-connection", "echo", "timeout", "connect_timeout", calls=0,
            provider={"base_url": "{full}", "timeouts": {"connect": 0.4}}),
    retried("hang", "hang", *FIRST_TOKEN, provider=HASTY),
    retried("head-then-nothing", "stall-*-0", *FIRST_TOKEN, 200, provider=HASTY, forms=STREAM),
    retried("head-then-nothing", part_of_document("", then="hang"), *FIRST_TOKEN, 200, provider=HASTY, forms=WHOLE,
            request="req-wire"),
    retried("stall", "say-20+rate-50+stall-*-15", "timeout", "idle_timeout", 200, provider=HASTY, forms=STREAM,
            withdrawn=True),
    retried("stall", "say-20+stall", "timeout", "idle_timeout", 200, provider=HASTY, forms=WHOLE),
    retried("too-long", "hang", *TOTAL, provider=BRIEF),
    retried("drip", "say-40+rate-20", *TOTAL, 200, provider=BRIEF, forms=STREAM, withdrawn=True),
    # Not streamed, an answer is kept back until it is whole: nothing has come when the time is up.
    retried("drip", "say-40+rate-20", *TOTAL, provider=BRIEF, forms=WHOLE),
    retried("408", "408", "timeout", ".invalid_request_error", 408),
    # Of a refusal whose text does not come, the status is known, and so is the wait that its head asks for.
    fails("401-then-nothing", wire("HTTP/1.1 401 No", "Content-Length: 90", "", "{", then="hang"),
          "authentication", "http_401", 401, request=None, provider={"timeouts": {"total": 9.0}}),
    retried("503-then-cut", wire("HTTP/1.1 503 Busy", "Retry-After: 2", "Content-Length: 90", "", "{"),
            "provider_error", "http_503", 503, request=None, delays=asked(2)),
)  # fmt: skip
