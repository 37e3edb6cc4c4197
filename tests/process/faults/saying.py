"""What providers send, in the form that `[[raw {...}]]` takes (features.fake_provider)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

Raw = dict[str, Any]
Told = Raw | Callable[[bool], Raw]
"""What the user's message tells the provider to send; it may depend on whether the run streams."""

SSE = "text/event-stream"
DONE = "data: [DONE]\n\n"
HEAD = ("HTTP/1.1 200 OK", "X-Request-Id: req-wire")


def http(status: int, body: Any = "", **headers: str) -> Raw:
    """An answer with this status; `retry_after_ms="5"` is the header retry-after-ms."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status": status, "headers": named, "body": body}


def page(status: int, content_type: str = "text/html") -> Raw:
    """What a proxy sends."""
    return http(status, "<!doctype html><html><body>Please stand by</body></html>", content_type=content_type)


def wire(*lines: str, then: str = "close") -> Raw:
    """Lines in place of an HTTP answer; the last one is not ended."""
    return {"wire": "\r\n".join(lines), "then": then}


def part_of_document(text: str, then: str = "close") -> Raw:
    """The beginning of 500 bytes of JSON."""
    return wire(*HEAD, "Content-Type: application/json", "Content-Length: 500", "", text, then=then)


def chunk(delta: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    """One event of a stream."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def events(*payloads: Any, content_type: str = SSE) -> Raw:
    """A stream of events; texts stand for themselves, everything else is JSON."""
    texts = [each if isinstance(each, str) else f"data: {orjson.dumps(each).decode()}\n\n" for each in payloads]
    return http(200, "".join(texts), content_type=content_type)


def completion(message: Any, finish: Any = "stop") -> Told:
    """The message as an answer, streamed or not."""

    def told(stream: bool) -> Raw:
        if stream:
            return events(chunk(message), chunk({}, finish), DONE)
        return http(200, {"choices": [{"index": 0, "message": message, "finish_reason": finish}]})

    return told


def reported(error: Any) -> Told:
    """An error in a 200: in a stream after some text, else in place of the completion."""
    text = chunk({"role": "assistant", "content": "So far"})
    return lambda stream: events(text, {"error": error}) if stream else http(200, {"error": error})


FINE = {"role": "assistant", "content": "Fine."}


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    """A message that calls the calculator, with these fields of each call."""
    function = {"name": "calculator", "arguments": '{"expression": "1 + 1"}'}
    made = [{"index": i, "type": "function", "function": function, **call} for i, call in enumerate(calls)]
    return {"role": "assistant", "content": None, "tool_calls": made}
