"""What a provider may say: calls and text."""

from __future__ import annotations

import orjson

from tests.process.hostile.answers import (
    DONE,
    FINE,
    FINE_STREAM,
    Play,
    call,
    calling,
    calls,
    document,
    endless,
    event,
    message,
    stream,
)
from tests.process.hostile.kind import BAD, COMPLETED, CUT, EMPTY, LARGE, LONG, MANY, MIB, kind


def deep(levels: int) -> str:
    """An object of so many levels."""
    return '{"x":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


def pick(arguments: str) -> Play:
    """A call of the client's tool."""
    return calling(calls(call(0, "pick", arguments)))


def calculate(arguments: str) -> Play:
    """A call of a tool of the server."""
    return calling(calls(call(0, "calculator", arguments)))


_EMPTY_CALLS = b'data: {"choices":[{"delta":{"tool_calls":[' + b"{}," * 19_999 + b"{}]}}]}\n\n"

CALLS = (
    kind("unknown-tools-5000", calling(*(calls(*(call(100 * i + k) for k in range(100))) for i in range(50))), MANY),
    kind("empty-calls-20000", stream(_EMPTY_CALLS, DONE), MANY),
    kind("empty-calls-20000-whole", message({"tool_calls": [{}] * 20_000}), MANY, stream=False),
    kind("client-tools-1000", calling(*(calls(call(i, "pick")) for i in range(1000))), MANY),
    kind("calls-of-one-index", calling(calls(*[call(0, "")] * 5000)), MANY),
    kind("calls-more-than-the-provider-may", calling(calls(call(0), call(1), call(2))), MANY,
         provider={"max_tool_calls": 2}),
    kind("unknown-tools-128", calling(calls(*(call(i, f"nobody_{i}") for i in range(128)))), COMPLETED),
    kind("deep-calls-128", calling(calls(*(call(i, "pick", deep(200)) for i in range(128)))), COMPLETED),
    kind("parts-of-one-call-5000", calling(*[calls({"index": 0})] * 5000), EMPTY),
    kind("index-far-away", calling(calls(call(10**9), call(-(10**9)), call(2**62))), COMPLETED),
    kind("index-is-a-fraction", calling(calls(call(0.5))), COMPLETED),
    kind("index-is-text", calling(calls(call("0"))), COMPLETED),
    kind("index-is-a-list", calling(calls(call([[]]))), COMPLETED),
    kind("name-of-100-kB", calling(calls(call(0, "x" * 100_000))), LONG),
    kind("name-in-drips", calling(*[calls(call(0, f"{i:03}", "")) for i in range(100)]), LONG),
    kind("name-of-controls", calling(calls(call(0, "a\n\r\x1b[31m\x00\u202e/../b"))), COMPLETED),
    kind("name-empty", calling(calls(call(0, ""))), COMPLETED),
    kind("arguments-of-300-kB", calling(calls(call(0, "pick", "x" * 300_000))), LONG),
    kind("arguments-without-end", endless(calls(call(0, "", "[" * 100))), LONG),
    kind("arguments-of-all", calling(*(calls(call(i, "pick", "x" * 200_000)) for i in range(6))), LONG),
    kind("arguments-deep-client", pick(deep(45_000)), COMPLETED),
    kind("arguments-of-300-levels", pick(deep(300)), COMPLETED),
    kind("arguments-deep-server", calculate(deep(45_000)), COMPLETED),
    kind("arguments-nan", calculate('{"expression": NaN}'), COMPLETED),
    kind("arguments-huge-number", calculate('{"expression": ' + "9" * 200_000 + "}"), COMPLETED),
    kind("arguments-surrogate", pick('{"x": "\\ud800"}'), COMPLETED),
    kind("arguments-nul", calculate('{"expression": "\\u0000"}\x00'), COMPLETED),
    kind("arguments-many-faults", calculate(orjson.dumps({f"k{i}" * 9: i for i in range(5000)}).decode()), COMPLETED),
    kind("arguments-many-values", pick('{"x": [' + "1," * 100_000 + "1]}"), COMPLETED),
    kind("arguments-twice-the-same-key", calculate('{"expression": "1", "expression": 2}'), COMPLETED),
    kind("arguments-power", calculate('{"expression": "9**9**9**9"}'), COMPLETED),
    kind("arguments-as-object", calling(calls(call(0, "calculator", {"expression": "1"}))), COMPLETED),
    kind("arguments-as-number", calling(calls(call(0, "calculator", 7))), COMPLETED),
    kind("ids-all-the-same", calling(calls(*(call(i, id="c") for i in range(100)))), COMPLETED),
    kind("ids-that-are-taken", calling(calls(*(call(i, id=f"call_{(i * 7) % 5}") for i in range(100)))), COMPLETED),
    kind("id-with-slashes", calling(calls(call(0, id="../1/2\n\r\x00"))), COMPLETED),
    kind("id-of-900-kB", calling(calls(call(0, id="x" * 900_000))), COMPLETED),
    kind("id-is-a-number", calling(calls(call(0, id=7))), COMPLETED),
    kind("calls-as-object", calling(event({"tool_calls": {"0": call(0)}})), COMPLETED),
    kind("calls-as-text", calling(event({"tool_calls": "pick"})), EMPTY),
    kind("calls-as-number", calling(event({"tool_calls": 7})), EMPTY),
    kind("function-null", calling(calls({"index": 0, "function": None})), EMPTY),
    kind("function-list", calling(calls({"index": 0, "function": ["pick"]})), EMPTY),
    kind("name-list", calling(calls(call(0, ["pick"]))), COMPLETED),
    kind("whole-calls-of-text", message({"tool_calls": ["pick"]}), EMPTY, stream=False),
)  # fmt: skip

TEXT = (
    kind("text-of-2-MiB", stream(*[event({"content": "x" * 100_000})] * 20, FINE_STREAM), LARGE),
    kind("text-without-end", endless(event({"content": "la " * 1000})), LARGE),
    kind("text-whole-of-16-MiB", message({"content": "x" * 16 * MIB}), LARGE, stream=False),
    kind("content-list", stream(event({"content": [{"type": "text", "text": FINE}]}), DONE), COMPLETED),
    kind("content-object", stream(event({"content": {"text": FINE}}), DONE), COMPLETED, output=FINE),
    kind("content-number", stream(event({"content": 7}), DONE), EMPTY),
    kind("content-nul", stream(event({"content": "a\x00\x1b[2J\u202e"}), event({}, "stop"), DONE), COMPLETED,
         output="a\x00\x1b[2J\u202e"),
    kind("content-surrogate", stream(b'data: {"choices":[{"delta":{"content":"\\ud800"}}]}\n\n', DONE), COMPLETED,
         output="\ufffd"),
    kind("role-of-1-MB", stream(event({"role": "x" * 1_000_000, "content": FINE}), event({}, "stop"), DONE), COMPLETED,
         output=FINE),
    kind("role-tool", stream(event({"role": "tool", "content": FINE, "tool_call_id": "1"}), event({}, "stop"), DONE),
         COMPLETED, output=FINE),
    kind("delta-list", stream(event([FINE]), DONE), EMPTY),
    kind("choices-100000", stream(b'data: {"choices":[' + b"{}," * 99_998 + b"{}]}\n\n", DONE), LARGE),
    kind("choices-object", stream(b'data: {"choices":{"0":{}}}\n\n', DONE), EMPTY),
    kind("choice-of-another-index", stream(b'data: {"choices":[{"index":7,"delta":{"content":"x"}}]}\n\n'), CUT),
    kind("arrays-200000", stream(b"data: [" + b"[]," * 200_000 + b"[]]\n\n"), LARGE),
    kind("arrays-whole-600000", document(b"[" + b"[]," * 600_000 + b"[]]"), LARGE, stream=False),
    kind("json-deep", stream(b"data: " + b"[" * 100_000 + b"]" * 100_000 + b"\n\n"), LARGE + "|" + BAD),
    kind("json-two-in-one", stream(b"data: {} {}\n\n"), CUT),
    kind("json-scalars", stream(b"data: 7\n\ndata: null\n\n"), BAD),
    kind("json-nan", stream(b'data: {"usage": {"prompt_tokens": NaN}}\n\n'), CUT),
    kind("finish-of-900-kB", stream(event({"content": FINE}), event({}, "x" * 900_000), DONE), COMPLETED, output=FINE),
    kind("finish-twice", stream(event({"content": FINE}, "stop"), event({}, "because"), DONE), COMPLETED, output=FINE),
    kind("finish-object", stream(event({"content": FINE}, {"why": 1}), DONE), COMPLETED, output=FINE),
    kind("usage-without-bounds", stream(event({"content": FINE}, "stop", usage={"prompt_tokens": 1e308}), DONE),
         COMPLETED, output=FINE),
    kind("usage-negative", stream(event({"content": FINE}, "stop", usage={"completion_tokens": -1e308}), DONE),
         COMPLETED, output=FINE),
    kind("usage-of-digits", stream(event({"content": FINE}, "stop", usage={"prompt_tokens": "9" * 900_000}), DONE),
         COMPLETED, output=FINE),
    kind("usage-list", stream(event({"content": FINE}, "stop", usage=[1]), DONE), COMPLETED, output=FINE),
    kind("usage-details-text", stream(event({}, usage={"prompt_tokens_details": "x"}), DONE), EMPTY),
)  # fmt: skip
