"""Streams and documents that are odd in ways that reports of bugs tell: each is read as it is meant, whole and byte by
byte."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from palaver.schemas.protocols import ProtocolName
from tests.unit.test_odd_streams import CALLED, DONE, ENDED, call, calls_of, chunk, event, reader, shown

F: Final = ("f", {"a": 1})
G: Final = ("g", {"b": 2})
HELLO: Final[tuple[str, str, tuple[Any, ...]]] = ("hello", "", ())
ONE: Final[tuple[str, str, tuple[Any, ...]]] = ("", "", (F,))
TWO: Final[tuple[str, str, tuple[Any, ...]]] = ("", "", (F, G))
HEL_LO: Final = chunk({"content": "hel"}) + chunk({"content": "lo"})
SAID: Final = HEL_LO + ENDED
DOUBLE: Final = json.dumps('{"a":1}')


def part(arguments: Any = "", **more: Any) -> bytes:
    return chunk({"tool_calls": [call(arguments, **{"index": 0, **more})]})


FIRST: Final = {"id": "x", "name": "f"}


def lines(stream: bytes, **layout: Any) -> list[bytes]:
    """The JSON of each event, written again."""
    values = [line[6:] for line in stream.split(b"\n\n") if line.startswith(b"data: {")]
    return [json.dumps(json.loads(value), **layout).encode() for value in values]


def within(line: bytes) -> bytes:
    return b'data: {"code":200,"message":"ok","data":%b}\n\n' % line


CHAT: Final = {
    # Arguments.
    "an empty object before the pieces": (part("{}", **FIRST) + part('{"a"') + part(":1}") + CALLED, ONE),
    "the same with name and id": (part("{}", **FIRST) + part('{"a":1}', **FIRST) + CALLED, ONE),
    "an empty object as an object": (part({}, **FIRST) + part('{"a":1}') + CALLED, ONE),
    "null as text before the pieces": (part("null", **FIRST) + part('{"a":1}') + CALLED, ONE),
    "null as text": (part("null", **FIRST) + CALLED, ("", "", (("f", {}),))),
    "all said again behind the pieces": (part('{"a"', **FIRST) + part(":1}") + part('{"a":1}') + CALLED, ONE),
    "each piece with all before it": (
        part("{", **FIRST) + part('{"a"') + part('{"a":') + part('{"a":1}') + part('{"a":1}') + CALLED,
        ONE,
    ),
    "all before it with name and id": (
        b"".join(part(piece, **FIRST) for piece in ('{"a"', '{"a":', '{"a":1}')) + CALLED,
        ONE,
    ),
    "pieces that begin alike": (part('{"', **FIRST) + part('{":1}') + CALLED, ("", "", (("f", {"{": 1}),))),
    "JSON in a text": (part(DOUBLE, **FIRST) + CALLED, ONE),
    "JSON in a text, in pieces": (part(DOUBLE[:5], **FIRST) + part(DOUBLE[5:]) + CALLED, ONE),
    "parameters": (
        chunk({"tool_calls": [{"id": "x", "function": {"name": "f", "parameters": {"a": 1}}}]}) + CALLED,
        ONE,
    ),
    # Where parts belong.
    "an index for each part": (part('{"a"', **FIRST) + part(":1}", index=1, id="x") + CALLED, ONE),
    "an index for each part, named": (part('{"a"', **FIRST) + part(":1}", index=1, **FIRST) + CALLED, ONE),
    "one id for two calls": (part('{"a":1}', **FIRST) + part('{"b":2}', index=1, id="x", name="g") + CALLED, TWO),
    "a name with space around it": (part('{"a":1}', id="x", name=" f\n") + CALLED, ONE),
    "a text for an id that was said": (
        part("", index=None, **FIRST) + part('{"a":1}', index=None, id="", name="") + CALLED,
        ONE,
    ),
    # How events are written.
    "the end as JSON": (HEL_LO + b'data: "[DONE]"\n\n', HELLO),
    "the end in small letters": (HEL_LO + b"data: [done]\n\n", HELLO),
    "the end as a word": (HEL_LO + b"data: DONE\n\n", HELLO),
    "data twice": (SAID.replace(b"data: ", b"data: data: "), HELLO),
    "data twice without space": (SAID.replace(b"data: ", b"data:data:"), HELLO),
    "indented": (SAID.replace(b"data:", b" data:"), HELLO),
    "in capitals": (SAID.replace(b"data:", b"DATA:"), HELLO),
    "over lines, of which the first is data": (
        b"".join(b"data: %b\n\n" % line for line in lines(SAID, indent=2)) + DONE,
        HELLO,
    ),
    "over lines, of which none is data": (b": ok\n\n" + b"\n\n".join(lines(SAID, indent=2)) + b"\n\n", HELLO),
    "a line feed in a text": (b'data: {"choices":[{"delta":{"content":"a\nb"}}]}\n\n' + ENDED, ("a\nb", "", ())),
    "JSON in JSON": (b"".join(b"data: %b\n\n" % json.dumps(line.decode()).encode() for line in lines(SAID)), HELLO),
    "events in the data of objects": (b"".join(within(line) for line in lines(SAID)) + DONE, HELLO),
    "a list of events": (b"data: [" + b",".join(lines(SAID)) + b"]\n\n", HELLO),
    "nothing between events": (b"data: " + b"".join(lines(SAID)) + b"\n\n", HELLO),
    "data alone between events": (b"data: " + b"data: ".join(lines(SAID)) + b"\n\n", HELLO),
    # What a chunk has.
    "messages": (
        event(choices=[{"message": {"content": "hel"}}])
        + chunk({})
        + event(choices=[{"message": {"content": "lo"}}])
        + ENDED,
        HELLO,
    ),
    "messages with all that came": (
        b"".join(event(choices=[{"message": {"content": text}}]) for text in ("h", "hel", "hello")) + ENDED,
        HELLO,
    ),
    "a message behind deltas": (HEL_LO + event(choices=[{"message": {"content": "hello!"}}]) + ENDED, HELLO),
    "messages, then a call": (
        event(choices=[{"message": {"content": "hello"}}])
        + event(choices=[{"message": {"content": "", "tool_calls": [call('{"a":1}', **FIRST)]}}])
        + CALLED,
        ("hello", "", (F,)),
    ),
    "text": (event(choices=[{"text": "hel"}]) + event(choices=[{"text": "lo"}]) + ENDED, HELLO),
    "a delta that is a text": (chunk("hello") + ENDED, HELLO),
    "reasoning among the parts": (
        chunk({"content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "hello"}]}) + ENDED,
        ("hello", "hm", ()),
    ),
    "thinking as text": (chunk({"thinking": "hm"}) + SAID, ("hello", "hm", ())),
    "reasoning_text": (chunk({"reasoning_text": "hm"}) + SAID, ("hello", "hm", ())),
    "an error that says nothing": (chunk({"content": "hello"}, error={"code": None, "message": ""}) + ENDED, HELLO),
}


def block(kind: str, **more: Any) -> bytes:
    return event(type=f"content_block_{kind}", index=0, **more)


def given(**fields: Any) -> bytes:
    return block("start", content_block={"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}, **fields})


def piece(text: Any) -> bytes:
    return block("delta", delta={"type": "input_json_delta", "partial_json": text})


USED: Final = (
    block("stop") + event(type="message_delta", delta={"stop_reason": "tool_use"}) + event(type="message_stop")
)
SPOKEN: Final = block("start", content_block={"type": "text", "text": "hello"})
ANTHROPIC: Final = {
    "an empty object before the pieces": (given() + piece("{}") + piece('{"a":1}') + USED, ONE),
    "an empty object behind all of it": (given(input={"a": 1}) + piece("{}") + USED, ONE),
    "input as text": (given(input='{"a":1}') + USED, ONE),
    "a piece that is an object": (given() + piece({"a": 1}) + USED, ONE),
    "JSON in a text": (given() + piece(DOUBLE) + USED, ONE),
    "each piece with all before it": (given() + piece("{") + piece('{"a":') + piece('{"a":1}') + USED, ONE),
    "events in the data of objects": (
        b"".join(map(within, lines(SPOKEN + event(type="message_delta", stop_reason="stop")))),
        HELLO,
    ),
    "text in the block of a call": (
        given() + piece('{"a"') + block("delta", delta={"type": "text_delta", "text": "hello"}) + piece(":1}") + USED,
        ("hello", "", (F,)),
    ),
    "the reason beside the delta": (SPOKEN + event(type="message_delta", stop_reason="stop"), HELLO),
}


def item(kind: str, name: str = "", /, **more: Any) -> bytes:
    return event(type=f"response.{kind}", **{"output_index": 0, **({"item": function(**more)} if name else more)})


def function(**more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "", **more}


def done(*output: Any, kind: str = "completed", **more: Any) -> bytes:
    return event(type=f"response.{kind}", response={"output": [*output], **more})


ADDED: Final = item("output_item.added", "f")
SECOND: Final = {"id": "fc_2", "call_id": "call_2", "name": "g"}
ARGUED: Final = "function_call_arguments.delta"
ARGUMENTS: Final = "function_call_arguments.done"
RESPONSES: Final = {
    "an empty delta, then all": (ADDED + item(ARGUED, delta="") + item(ARGUMENTS, arguments='{"a":1}') + done(), ONE),
    "an empty delta, then the item": (
        ADDED + item(ARGUED, delta="") + item("output_item.done", "f", arguments='{"a":1}') + done(),
        ONE,
    ),
    "an empty end, then the item": (
        ADDED + item(ARGUMENTS, arguments="") + item("output_item.done", "f", arguments='{"a":1}') + done(),
        ONE,
    ),
    "pieces lost, then all": (ADDED + item(ARGUED, delta='{"a"') + item(ARGUMENTS, arguments='{"a":1}') + done(), ONE),
    "all thrice": (
        ADDED
        + item(ARGUED, delta='{"a":1}')
        + item(ARGUMENTS, arguments='{"a": 1}')
        + item("output_item.done", "f", arguments='{"a": 1}')
        + done(function(arguments='{"a": 1}')),
        ONE,
    ),
    "a delta that is an object": (ADDED + item(ARGUED, delta={"a": 1}) + done(), ONE),
    "arguments that are an object": (ADDED + item(ARGUMENTS, arguments={"a": 1}) + done(), ONE),
    "arguments at the beginning alone": (item("output_item.added", "f", arguments='{"a":1}') + done(), ONE),
    "one index for two calls": (
        ADDED
        + item("output_item.added", "g", **SECOND)
        + item(ARGUED, item_id="fc_1", delta='{"a":1}')
        + item(ARGUED, item_id="fc_2", delta='{"b":2}')
        + item("output_item.done", "f", arguments='{"a":1}')
        + item("output_item.done", "g", **SECOND, arguments='{"b":2}')
        + done(),
        TWO,
    ),
    "another id in each event": (
        item("output_item.added", "f", id="A") + item(ARGUED, item_id="B", delta='{"a":1}') + done(function(id="C")),
        ONE,
    ),
    "a part that is whole": (
        item("content_part.done", part={"type": "output_text", "text": "hello"}) + done(),
        HELLO,
    ),
    "parts that are whole": (
        item("output_text.delta", delta="hel")
        + item("output_text.done", content_index=0, text="hel")
        + item("content_part.done", content_index=0, part={"type": "output_text", "text": "hel"})
        + item("output_text.done", content_index=1, text="lo")
        + done(),
        HELLO,
    ),
    "an empty thought, then the item": (
        item("reasoning_text.delta", delta="")
        + event(
            type="response.output_item.done", output_index=0, item={"type": "reasoning", "id": "rs", "summary": "hm"}
        )
        + item("output_text.delta", output_index=1, delta="hello")
        + done(),
        ("hello", "hm", ()),
    ),
    "events in the data of objects": (
        b"".join(map(within, lines(item("output_text.delta", delta="hello") + done()))),
        HELLO,
    ),
    "each piece with all before it": (
        ADDED + b"".join(item(ARGUED, delta=piece) for piece in ("{", '{"a":', '{"a":1}')) + done(),
        ONE,
    ),
    "response.done": (item("output_text.delta", delta="hello") + done(kind="done"), HELLO),
    "a proxy's end": (item("output_text.delta", delta="hello") + DONE, HELLO),
    "a proxy's end of a call": (ADDED + item(ARGUED, delta='{"a":1}') + DONE, ONE),
}
STREAMS: Final = [
    *(pytest.param("chat_completions", *row, id=name) for name, row in CHAT.items()),
    *(pytest.param("anthropic", *row, id=name) for name, row in ANTHROPIC.items()),
    *(pytest.param("responses", *row, id=name) for name, row in RESPONSES.items()),
]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(("protocol", "stream", "right"), STREAMS)
def test_what_is_odd_is_read_as_it_is_meant(protocol: ProtocolName, stream: bytes, right: Any, size: int) -> None:
    reply, said, thoughts = shown(
        reader(protocol), *(stream[start : start + size] for start in range(0, len(stream), size))
    )
    assert (said, thoughts, calls_of(reply)) == right
    assert reply.content == said


def message(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"message": fields, "finish_reason": "stop"}]}


def claude(*content: Any) -> dict[str, Any]:
    return {"type": "message", "content": [*content], "stop_reason": "end_turn"}


@pytest.mark.parametrize(
    ("protocol", "document", "right"),
    [
        ("chat_completions", {"choices": [{"delta": {"content": "hello"}}]}, HELLO),
        ("chat_completions", {"choices": [{"text": "hello"}]}, HELLO),
        ("chat_completions", [{"choices": [{"message": {"content": "hello"}}]}], HELLO),
        ("chat_completions", message(tool_calls=[call(DOUBLE, **FIRST)]), ONE),
        ("chat_completions", message(tool_calls=[call('{"a":1}', id="x", name=n) for n in "ff"]), ("", "", (F, F))),
        ("anthropic", claude({"type": "tool_use", "id": "t", "name": "f", "input": '{"a":1}'}), ONE),
        ("anthropic", claude({"text": "hello"}), HELLO),
        ("anthropic", claude("hello"), HELLO),
        ("responses", {"output": [function(arguments=DOUBLE)]}, ONE),
        ("chat_completions", {"code": 0, "data": message(content="hello")}, HELLO),
        ("anthropic", {"code": 200, "message": "ok", "data": claude("hello")}, HELLO),
        ("responses", {"success": True, "data": {"output": [function(arguments=DOUBLE)]}}, ONE),
    ],
)
def test_a_document_is_read_as_it_is_meant(protocol: ProtocolName, document: Any, right: Any) -> None:
    answer = reader(protocol)
    said = answer.read(json.dumps(document).encode())
    assert (said, "", calls_of(answer.reply())) == right
