"""The key that came with a question, said again in the answer."""

from __future__ import annotations

import base64

import orjson

from tests.process.hostile.answers import DONE, call, calls, echoing, event, head
from tests.process.hostile.kind import COMPLETED, kind


def _in_an_error(key: str) -> bytes:
    said = {"message": f"{key} is wrong", "type": key, "code": key, "param": key, "request_id": key}
    return head(401, "application/json", f"X-Request-Id: {key}") + orjson.dumps({"error": said})


def _in_part(key: str) -> bytes:
    said = f"Incorrect key {key[:10]}...{key[-10:]}, with {key[8:20]} within"
    return head(401, "application/json") + orjson.dumps({"error": {"message": said}})


def _in_pieces(key: str) -> tuple[bytes, ...]:
    text = (event({"content": char}) for char in f"Your key is {key}, or so.")
    return (head(), *text, event({}, "stop"), DONE)


def _in_a_call(key: str) -> bytes:
    return (
        head()
        + calls(call(0, key[:60], orjson.dumps({"x": key}).decode(), id=key[:60]))
        + event({}, "tool_calls")
        + DONE
    )


def _in_any_form(key: str) -> bytes:
    forms = (key, key.upper(), base64.b64encode(f"Bearer {key}".encode()).decode(), key.encode().hex(), f"Bearer {key}")
    return head() + event({"content": " ".join(forms)}, key) + DONE


ECHOES = (
    kind("key-in-an-error", echoing(_in_an_error), "authentication/http_401"),
    kind("key-in-an-error-in-part", echoing(_in_part), "authentication/http_401"),
    kind("key-in-an-error-event", echoing(lambda key: head() + event({}, error={"code": key, "message": key})),
         "provider_error/error_in_answer"),
    kind("key-in-text", echoing(_in_any_form), COMPLETED),
    kind("key-in-pieces", echoing(_in_pieces), COMPLETED, output="Your key is [redacted], or so."),
    kind("key-in-a-call", echoing(_in_a_call), COMPLETED),
    kind("key-as-a-number-of-the-request",
         echoing(lambda key: head(500, "text/plain", f"request-id: req_{key}") + b"?"),
         "provider_error/http_500"),
    kind("key-in-the-status-line", echoing(lambda key: f"HTTP/1.1 503 {key}\r\n\r\n{key}".encode()),
         "provider_error/http_503"),
)  # fmt: skip
