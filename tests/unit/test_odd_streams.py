"""Streams that providers sent and that are odd: what can be read of them is read, and what was odd is said once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from palaver.errors import MalformedResponse
from palaver.schemas.protocols import ProtocolName
from palaver.vocabulary.limits import limit_of
from tests.unit.answers import streamed
from workers.protocols import PROTOCOLS, AnswerReader, ModelReply

STREAMS: Final = Path(__file__).parents[1] / "fixtures" / "streams"
PROTOCOL: Final[dict[str, ProtocolName]] = {"chat": "chat_completions", "anth": "anthropic", "resp": "responses"}
ADD: Final = ("add", {"a": 1, "b": 2})
LOOK: Final = "Look: 😀 and 🌈!"
RIGHT: Final[dict[str, tuple[str, str, tuple[Any, ...]]]] = {
    "chat-name-repeated": ("", "", (ADD,)),
    "chat-name-repeated-two": ("", "", (("add", {"a": 0, "b": 2}), ADD)),
    "chat-same-id-no-index": ("", "", (ADD,)),
    "chat-half-emoji": (LOOK, "", ()),
    "chat-half-emoji-think": ("ok", "hm 😀", ()),
    "chat-half-alone": ("cut \ufffd", "", ()),
    "anth-half-emoji": (LOOK, "", ()),
    "chat-data-multiline": ("hello", "", ()),
    "anth-data-multiline": ("hello", "", ()),
    "chat-cr-only": ("hello", "", ()),
    "resp-no-done-events": ("hello", "", ()),
    "resp-no-done-events-no-index": ("hello", "", ()),
    "chat-data-null": ("hello", "", ()),
    "chat-calls-null-entry": ("", "", (ADD,)),
    "anth-data-null": ("hello", "", ()),
    "chat-nan-logprobs": ("hello", "", ()),
    "chat-end-event": ("hello", "", ()),
    "chat-calls-one-object": ("", "", (ADD,)),
    "chat-legacy-function": ("", "", (ADD,)),
    "anth-no-block-stop": ("", "", (("add", {"a": 4, "b": 5}),)),
    "anth-dup-start": ("hello", "hm so", ()),
    "anth-index-zero": ("I add.", "", (("add", {"a": 4, "b": 5}),)),
    "anth-input-twice": ("", "", (("add", {"a": 4, "b": 5}),)),
}
"""The text, the thoughts and the calls of each stream."""


def reader(protocol: ProtocolName = "chat_completions") -> AnswerReader:
    return PROTOCOLS[protocol].reader(max_calls=10)


def calls_of(reply: ModelReply) -> tuple[Any, ...]:
    return tuple((call.name, json.loads(call.arguments)) for call in reply.tool_calls)


def shown(answer: AnswerReader, *pieces: bytes) -> tuple[ModelReply, str, str]:
    """What is read of a stream, with what its end brings."""
    told = [*map(answer.feed, pieces), answer.end()]
    said, thoughts = ("".join(each) for each in zip(*told, strict=True))
    return answer.reply(), said, thoughts


def test_each_recorded_stream_has_its_row() -> None:
    assert {path.stem for path in STREAMS.iterdir()} == set(RIGHT)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", RIGHT)
def test_what_providers_sent_is_read(name: str, size: int) -> None:
    stream = (STREAMS / f"{name}.sse").read_bytes()
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    reply, said, thoughts = shown(reader(PROTOCOL[name.partition("-")[0]]), *pieces)
    assert (said, thoughts, calls_of(reply)) == RIGHT[name]
    assert reply.content == said


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish}], **more)


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def call(arguments: Any = "", **more: Any) -> dict[str, Any]:
    """A part of a call; its ``name`` is the function's."""
    function = {"name": more.pop("name")} if "name" in more else {}
    return {**more, "function": {**function, "arguments": arguments}}


DONE: Final = b"data: [DONE]\n\n"
CALLED: Final = chunk({}, "tool_calls") + DONE
ENDED: Final = chunk({}, "stop") + DONE


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        # What is said again.
        ([call("{", index=0, id="a", name="f"), call("}", index=0, id="a", name="f")], [("f", {})]),
        ([call("{}", index=0, id="a", name="f"), call("{}", index=0, id="a", name="f")], [("f", {})]),
        ([call("{}", id="a", name="f"), call("{}", id="a", name="f")], [("f", {})]),
        ([call("", index=0, name="get"), call("", index=0, name="_it"), call("{}", index=0)], [("get_it", {})]),
        # Another call at the same place.
        ([call("{}", index=0, id="a", name="f"), call("{}", index=0, id="a", name="g")], [("f", {}), ("g", {})]),
        ([call("{}", index=0, name="f"), call('{"x":1}', index=0, name="f")], [("f", {}), ("f", {"x": 1})]),
        ([call("{}", id="a", name="f"), call("{}", id="b", name="f")], [("f", {}), ("f", {})]),
        # Without an index.
        ([call("", id="a", name="f"), call("{", id="a"), call("}", id="a")], [("f", {})]),
        (
            [call("{", id="a", name="f"), call("[", id="b", name="g"), call("}", id="a"), call("]", id="b")],
            [("f", {}), ("g", [])],
        ),
        ([call("{", name="f"), call("}", name="f")], [("f", {})]),
        ([call("", name="f"), call("{}", name="f")], [("f", {})]),
        ([call("{}", name="f"), call("{}", name="f")], [("f", {}), ("f", {})]),
        # Indices and ids of other kinds.
        ([call("{", index="0", name="f"), call("}", index=0.0)], [("f", {})]),
        ([call("{", id=7, name="f"), call("}", id=7)], [("f", {})]),
        # What carries nothing.
        ([{}, call("{}", index=0, name="f"), {"index": 0, "function": None}, "x", 7, None], [("f", {})]),
        ([{"index": 0, "name": "f", "arguments": {"x": 1}}], [("f", {"x": 1})]),
    ],
)
def test_parts_of_calls_belong_together_as_they_are_meant(parts: list[Any], calls: list[Any]) -> None:
    apart = b"".join(chunk({"tool_calls": [part]}) for part in parts)
    assert list(calls_of(streamed(reader(), apart + CALLED)[0])) == calls


@pytest.mark.parametrize("odd", [None, 7, "x", [], [None], {}, {"x": None}, True])
@pytest.mark.parametrize(
    "place",
    [
        *("choices", "choices.0", "choices.0.delta", "choices.0.delta.content", "choices.0.delta.tool_calls"),
        *("choices.0.delta.reasoning_content", "choices.0.delta.reasoning_details", "choices.0.delta.refusal"),
        *("choices.0.finish_reason", "choices.0.logprobs", "usage", "usage.prompt_tokens", "id", "model"),
        *("choices.0.delta.tool_calls.0", "choices.0.delta.function_call", "usage.prompt_tokens_details"),
        *("choices.0.delta.content.0", "choices.0.delta.content.0.text", "choices.0.delta.content.0.thinking"),
    ],
)
def test_what_is_of_another_kind_carries_nothing(place: str, odd: Any) -> None:
    """Nowhere in a chunk does another value spoil what the others say."""
    document: dict[str, Any] = {"choices": [{"delta": {"content": [{"type": "thinking"}], "tool_calls": [{}]}}]}
    document["usage"] = {"prompt_tokens": 3}
    where: Any = document
    *path, last = (int(name) if name.isdecimal() else name for name in place.split("."))
    for name in path:
        where = where[name] if name in where or isinstance(name, int) else where.setdefault(name, {})
    where[last] = odd
    if path[-1:] == ["delta"] and last != "tool_calls":
        del where["tool_calls"]
    answer = reader()
    reply, said, _ = shown(answer, chunk({"content": "so "}), event(**document), chunk({"content": "far"}), ENDED)
    assert said.replace("x", "") == reply.content.replace("x", "") == "so far"
    assert "so far" not in answer.oddities


ANTHROPIC: Final = (STREAMS / "anth-index-zero.sse").read_bytes()
"""A text and a call."""


@pytest.mark.parametrize("odd", [None, 7, "x", [], [None], {}, True])
@pytest.mark.parametrize(
    "place",
    ["message_start.message", "message_delta.usage", "content_block_stop.index", "ping.x", "message_start.type"],
)
def test_what_carries_nothing_in_messages_may_be_anything(place: str, odd: Any) -> None:
    kind, _, field = place.partition(".")
    events = [json.loads(line[6:]) for line in ANTHROPIC.splitlines() if line.startswith(b"data")]
    bent = [
        {**each, field: odd} if each["type"] == kind else each for each in [*events[:3], {"type": "ping"}, *events[3:]]
    ]
    reply, said, _ = shown(reader("anthropic"), *(event(**each) for each in bent))
    assert (said, calls_of(reply)) == ("I add.", (("add", {"a": 4, "b": 5}),))


def test_a_type_that_is_not_in_the_data_is_the_name_of_the_event() -> None:
    bare = b"".join(
        b"data: " + json.dumps({k: v for k, v in json.loads(line[6:]).items() if k != "type"}).encode() + b"\n"
        if line.startswith(b"data")
        else line
        for line in ANTHROPIC.splitlines(keepends=True)
    )
    reply, said, _ = shown(reader("anthropic"), bare)
    assert (said, calls_of(reply)) == ("I add.", (("add", {"a": 4, "b": 5}),))


HALVES: Final = json.dumps({"t": "a😀b"}).encode()
"""Both halves, as escapes."""


def halves(**fields: Any) -> list[bytes]:
    """Two events of which each has a half of a character, where ``fields`` has ``HERE``."""
    whole = event(**fields)
    return [whole.replace(b"HERE", rb"a\ud83d"), whole.replace(b"HERE", rb"\ude00b")]


@pytest.mark.parametrize("alone", [False, True])
def test_halves_of_a_character_become_one_in_arguments(alone: bool) -> None:
    said = "a\ufffd" if alone else "a😀b"
    first, second = halves(choices=[{"delta": {"tool_calls": [call("HERE", index=0)]}}])
    start = chunk({"tool_calls": [call('{"x":"', index=0, name="f")]})
    end = chunk({"tool_calls": [call('"}', index=0)]})
    reply, _, _ = shown(reader(), start, first, *([] if alone else [second]), end, CALLED)
    assert calls_of(reply) == (("f", {"x": said}),)

    def block(kind: str, **more: Any) -> bytes:
        return event(type=f"content_block_{kind}", index=0, **more)

    def piece(text: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}

    first, second = halves(**piece("HERE"))
    pieces = [block("start", content_block={"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}})]
    pieces += [event(**piece('{"x":"')), first, *([] if alone else [second]), event(**piece('"}')), block("stop")]
    pieces += [event(type="message_delta", delta={"stop_reason": "tool_use"}), event(type="message_stop")]
    assert calls_of(shown(reader("anthropic"), *pieces)[0]) == (("f", {"x": said}),)

    def responded(kind: str, **more: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "output_index": 0, **more}

    item = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": ""}
    first, second = halves(**responded("function_call_arguments.delta", delta="HERE"))
    pieces = [event(**responded("output_item.added", item=item))]
    pieces += [event(**responded("function_call_arguments.delta", delta='{"x":"')), first, *([] if alone else [second])]
    pieces += [event(**responded("function_call_arguments.delta", delta='"}'))]
    pieces += [event(**responded("output_item.done", item=item)), event(type="response.completed", response={})]
    assert calls_of(shown(reader("responses"), *pieces)[0]) == (("f", {"x": said}),)


@pytest.mark.parametrize("alone", [False, True])
def test_halves_of_a_character_become_one_in_what_is_sent_back(alone: bool) -> None:
    said = "a\ufffd" if alone else "a😀b"
    for field in ("reasoning_details", "thinking_blocks"):
        first, second = halves(choices=[{"delta": {field: [{"type": "x", "index": 0, "text": "HERE"}]}}])
        reply, _, _ = shown(reader(), first, *([] if alone else [second]), chunk({"content": "ok"}), ENDED)
        (entry,) = json.loads(reply.opaque)[field]
        assert entry["text"] == said
    first, second = halves(choices=[{"delta": {"reasoning_content": "HERE"}}])
    reply, _, thoughts = shown(reader(), first, *([] if alone else [second]), chunk({"content": "ok"}), ENDED)
    assert json.loads(reply.opaque)["reasoning_content"] == thoughts == said
    delta = {"type": "thinking_delta", "thinking": "HERE"}
    first, second = halves(type="content_block_delta", index=0, delta=delta)
    pieces = [event(type="content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}), first]
    pieces += [*([] if alone else [second]), event(type="content_block_stop", index=0)]
    pieces += [event(type="content_block_start", index=1, content_block={"type": "text", "text": "ok"})]
    pieces += [event(type="message_delta", delta={"stop_reason": "end_turn"}), event(type="message_stop")]
    reply, _, thoughts = shown(reader("anthropic"), *pieces)
    assert json.loads(reply.opaque)["blocks"][0]["thinking"] == thoughts == said


def test_a_half_of_a_character_is_shown_with_its_other_half_and_alone_as_unknown() -> None:
    answer = reader()
    first, second = halves(choices=[{"delta": {"content": "HERE"}}])
    assert [answer.feed(piece)[0] for piece in (first, second, second, first, chunk({"content": "c"}), ENDED)] == [
        *("a", "😀b", "\ufffdb", "a", "\ufffdc", "")
    ]
    assert answer.reply().content == "a😀b\ufffdba\ufffdc"
    assert "mended" in answer.oddities


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_three_ways_and_mean_what_the_standard_says(protocol: ProtocolName, end: bytes) -> None:
    name = {"chat_completions": "chat-half-emoji", "anthropic": "anth-index-zero", "responses": "resp-no-done-events"}
    stream = (STREAMS / f"{name[protocol]}.sse").read_bytes()
    right = RIGHT[name[protocol]]
    bent = b"\xef\xbb\xbf: hello\nretry: 5\nid: 7\nunknown\n\n" + stream.replace(b"\n\n", b"\n: more\n\n\n\n: x\n")
    for size in (1, 3, 100, 1 << 20):
        whole = bent.replace(b"\n", end)
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        reply, said, thoughts = shown(reader(protocol), *pieces)
        assert (said, thoughts, calls_of(reply)) == right


def test_events_without_an_empty_line_between_them_are_told_apart() -> None:
    stream = (chunk({"content": "hel"}) + chunk({"content": "lo"}) + ENDED).replace(b"\n\n", b"\n")
    assert streamed(reader(), stream)[0].content == "hello"
    bare = stream.replace(b"data: ", b"")
    assert streamed(reader(), bare)[0].content == "hello"
    answer = reader()
    assert answer.read(bare) == answer.reply().content == "hello"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_to_be_an_object_and_cannot_be_read_is_lost_and_said_in_words(protocol: ProtocolName) -> None:
    for odd in (b'data: {"a": \n\n', b"data: {nonsense}\n\n"):
        with pytest.raises(MalformedResponse, match="an event of the stream is no JSON") as raised:
            reader(protocol).feed(odd)
        assert "Error" not in str(raised.value)


def test_oddities_are_said_once_and_without_content() -> None:
    answer = reader()
    odd = chunk({"content": 5, "tool_calls": "secret"})
    answer.feed(odd * 3 + b"data: null\n\ndata: secret\n\n")
    assert answer.oddities == (
        "tool_calls is a text in place of a list (3 times); content is a number in place of a text (3 times); "
        "an event is no object; an event is no JSON"
    )
    assert len(answer.oddities) < limit_of("answer_line")
