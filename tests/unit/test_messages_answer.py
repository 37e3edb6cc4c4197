"""Anthropic's Messages are read from bytes: any split gives the same reply, and what is cut off runs no tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import (
    EmptyCompletion,
    MalformedResponse,
    ProviderError,
    ProviderHTTPError,
    ResponseTooLarge,
    TooManyToolCalls,
    TruncatedStream,
    classify,
)
from palaver.schemas.models import Message, ToolCall, Usage
from palaver.schemas.opaque import Opaque
from palaver.secrets import redaction as secrets
from palaver.secrets.redaction import Secrets, register_secrets
from palaver.vocabulary.limits import limit_of
from tests.unit.answers import split, streamed
from workers.protocols import MESSAGES, PAUSE, AnswerReader, ModelReply


def event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more}, ensure_ascii=False)}\n\n".encode()


def start(**usage: Any) -> bytes:
    return event("message_start", message={"id": "msg_1", "content": [], "usage": usage})


def block(index: int, first: dict[str, Any], *deltas: dict[str, Any], ends: bool = True) -> bytes:
    pieces = [event("content_block_start", index=index, content_block=first)]
    pieces += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join(pieces) + (event("content_block_stop", index=index) if ends else b"")


def ending(reason: str, **usage: Any) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage=usage) + event("message_stop")


def text(index: int, *pieces: str) -> bytes:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": each} for each in pieces))


def call(index: int, call_id: str, *pieces: str, ends: bool = True) -> bytes:
    deltas = ({"type": "input_json_delta", "partial_json": each} for each in pieces)
    return block(index, {"type": "tool_use", "id": call_id, "name": "add", "input": {}}, *deltas, ends=ends)


THINKING = block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "Zwölf "},
    {"type": "thinking_delta", "thinking": "🦊?"},
    {"type": "signature_delta", "signature": "EqQB"},
    {"type": "signature_delta", "signature": "C=="},
)
REDACTED = block(1, {"type": "redacted_thinking", "data": "ZW5j"})
TURN = (
    start(input_tokens=10, cache_read_input_tokens=100, cache_creation_input_tokens=7, output_tokens=1)
    + THINKING
    + event("ping")
    + REDACTED
    + text(2, "I will ", "add.")
    + call(3, "toolu_a", '{"x": ', "1}")
    + call(4, "toolu_b")
    + ending("tool_use", output_tokens=30, output_tokens_details={"thinking_tokens": 12})
)
THOUGHT = {"type": "thinking", "thinking": "Zwölf 🦊?", "signature": "EqQBC=="}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5j"}


def reader() -> AnswerReader:
    return MESSAGES.reader(max_calls=10)


def whole(document: dict[str, Any]) -> ModelReply:
    answer = reader()
    answer.read(json.dumps({"stop_reason": "end_turn", "usage": {"input_tokens": 1}, **document}).encode())
    return answer.reply()


@given(st.lists(st.integers(min_value=0, max_value=3000)))
def test_any_split_gives_the_same_reply(cuts: list[int]) -> None:
    reply, said, thoughts = streamed(reader(), *split(b": hello\n\n" + TURN, cuts))
    assert reply.content == said == "I will add."
    assert thoughts == "Zwölf 🦊?"
    assert reply.tool_calls == (
        ToolCall(id="toolu_a", name="add", arguments='{"x": 1}'),
        ToolCall(id="toolu_b", name="add", arguments="{}"),
    )
    assert reply.usage == Usage(
        input_tokens=117, cached_tokens=100, cache_write_tokens=7, output_tokens=30, reasoning_tokens=12, model_calls=1
    )
    assert json.loads(reply.opaque) == {"blocks": [THOUGHT, HIDDEN, 11, "toolu_a", "toolu_b"]}


@pytest.mark.slow
def test_a_cut_at_every_byte_keeps_what_is_whole_and_runs_nothing() -> None:
    """A call that has no end never runs, and a thought without its signature is not kept."""
    last = TURN.index(b'"stop_reason": "tool_use"')
    thinking_ends, redacted_ends = TURN.index(b"event: ping"), TURN.index(REDACTED) + len(REDACTED)
    for end in range(last):
        answer = reader()
        said, _ = answer.feed(TURN[:end])
        with pytest.raises((TruncatedStream, MalformedResponse)):
            answer.reply()
        kept = answer.opaque_so_far()
        blocks = [each for each in json.loads(kept or '{"blocks": []}')["blocks"] if isinstance(each, dict)]
        if end >= redacted_ends:
            assert blocks == [THOUGHT, HIDDEN]
        elif end < thinking_ends:
            # A line is whole before the line feed behind it.
            assert blocks in ([], [THOUGHT] if end > thinking_ends - 3 else [])
        if said:
            (sent,) = _sent(Message(role="assistant", content=said, partial=True), kept)
            assert [each["type"] for each in sent] == ["thinking", "redacted_thinking", "text"]
            assert sent[2]["text"] == said


def _sent(message: Message, opaque: str, *results: Message) -> list[list[dict[str, Any]]]:
    made = MESSAGES.turn(message, results, opaque) if message.tool_calls else [MESSAGES.message(message, opaque)]
    return [json.loads(each)["content"] for each in made]


def test_what_is_sent_back_is_what_came_in_its_order() -> None:
    interleaved = (
        start(input_tokens=1)
        + THINKING
        + text(1, "First.")
        + call(2, "toolu_a", '{"x": 1.50}')
        + block(3, {"type": "thinking", "thinking": "So", "signature": "AA"}, {"type": "text_delta", "text": ""})
        + call(4, "toolu_b", "{}")
        + ending("tool_use", output_tokens=2)
    )
    reply = streamed(reader(), interleaved)[0]
    asking = Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)
    results = [Message(role="tool", call_id=each.id, name="add", content="2") for each in reply.tool_calls]
    asked, answered = _sent(asking, reply.opaque, *results)
    assert [each["type"] for each in asked] == ["thinking", "text", "tool_use", "thinking", "tool_use"]
    assert asked[0] == THOUGHT
    assert asked[3] == {"type": "thinking", "thinking": "So", "signature": "AA"}
    assert [each["tool_use_id"] for each in answered] == ["toolu_a", "toolu_b"]
    assert Opaque("anthropic/x/y", reply.opaque).reasoning() == "Zwölf 🦊?So"


def test_a_whole_answer_is_kept_as_it_is_written() -> None:
    raw = '{"type": "thinking", "z": 1.50, "thinking": "\\u00fc", "signature": "A/B", "a": 100000000000000000001}'
    said = '{"type": "text", "text": "yes"}'
    asks = '{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"n": 100000000000000000001, "b": 1.50}}'
    body = f'{{"content": [{raw}, {said}, {asks}], "stop_reason": "tool_use", "usage": {{"input_tokens": 3}}}}'
    answer = reader()
    assert answer.read(body.encode()) == "yes"
    reply = answer.reply()
    assert raw in reply.opaque
    assert reply.tool_calls[0].arguments == '{"n": 100000000000000000001, "b": 1.50}'
    asking = Message(role="assistant", content="yes", tool_calls=reply.tool_calls)
    sent = MESSAGES.turn(asking, [Message(role="tool", call_id="toolu_1", content="1")], reply.opaque)[0].decode()
    assert raw in sent
    assert '"input":{"n": 100000000000000000001, "b": 1.50}' in sent


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "stop_sequence"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", PAUSE),
        ("something_new", "something_new"),
    ],
)
def test_stop_reasons(reason: str, finish: str) -> None:
    assert streamed(reader(), start() + text(0, "ok") + ending(reason))[0].finish_reason == finish
    document = {"content": [{"type": "text", "text": "ok"}], "stop_reason": reason}
    assert whole(document).finish_reason == finish


@pytest.mark.parametrize("details", ["none", ["x"], {}, {"explanation": {"a": 1}}, {"category": ["x"]}, 3])
def test_a_remark_on_the_end_in_a_shape_of_its_own_spoils_no_answer(details: Any) -> None:
    document = {"content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn", "stop_details": details}
    assert whole(document).content == "ok"


def test_a_whole_answer_says_why_it_ended() -> None:
    with pytest.raises(MalformedResponse):
        reader().read(b'{"content": []}')


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
def test_of_an_answer_that_hit_a_limit_no_call_is_made(reason: str) -> None:
    reply = streamed(reader(), start() + THINKING + call(1, "toolu_a", '{"x": ', ends=False) + ending(reason))[0]
    assert reply.tool_calls == ()
    assert json.loads(reply.opaque) == {"blocks": [THOUGHT]}


def test_a_call_without_an_end_is_made_if_its_arguments_are_whole() -> None:
    reply = streamed(reader(), start() + call(0, "toolu_a", '{"x":', "1}", ends=False) + ending("tool_use"))[0]
    assert [each.arguments for each in reply.tool_calls] == ['{"x":1}']
    with pytest.raises(MalformedResponse, match="has no end"):
        streamed(reader(), start() + call(0, "toolu_a", '{"x":', ends=False) + ending("tool_use"))


def test_an_answer_that_the_window_cut_off_is_too_long_a_conversation() -> None:
    with pytest.raises(ProviderHTTPError) as raised:
        streamed(reader(), start() + text(0, "so far") + ending("model_context_window_exceeded"))
    assert classify(raised.value, source="model").error_class == "context_window"


@pytest.mark.parametrize(
    ("kind", "error_class"),
    [("overloaded_error", "rate_limited"), ("api_error", "provider_error"), ("timeout_error", "timeout")],
)
def test_an_error_in_the_stream_is_judged_by_its_type(kind: str, error_class: str) -> None:
    with pytest.raises(ProviderHTTPError) as raised:
        streamed(reader(), start() + text(0, "so") + event("error", error={"type": kind, "message": "Overloaded"}))
    assert classify(raised.value, source="model", provider="x").error_class == error_class


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"", TruncatedStream),
        (start() + text(0, "so far"), TruncatedStream),
        (start() + ending("end_turn"), EmptyCompletion),
        (start() + THINKING + ending("end_turn"), EmptyCompletion),
        (start() + text(0, "hm") + ending("tool_use"), MalformedResponse),
        (b"<html>Sign in</html>\n", MalformedResponse),
        (b"hello\n", MalformedResponse),
        (b"data: {\n\n", MalformedResponse),
        (b"data: []\n\n", MalformedResponse),
        (b'data: {"no": "type"}\n\n', TruncatedStream),
        (block(0, {"type": "tool_use", "id": "toolu_a"}) + ending("tool_use"), MalformedResponse),
        (b"".join(call(i, f"toolu_{i}") for i in range(11)), TooManyToolCalls),
        (b"".join(text(i, "") for i in range(limit_of("answer_blocks") + 1)), ResponseTooLarge),
        (text(0, "x" * 700_000, "x" * 700_000), ResponseTooLarge),
        (
            block(0, {"type": "thinking"}, *[{"type": "thinking_delta", "thinking": "x" * 200_000}] * 2),
            ResponseTooLarge,
        ),
        (b"data: " + b"x" * (limit_of("answer_line") + 1), ResponseTooLarge),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(stream: bytes, error: type[ProviderError]) -> None:
    with pytest.raises(error):
        streamed(reader(), stream)


def test_nobody_counted() -> None:
    answer = reader()
    answer.feed(event("message_start", message={}) + text(0, "ok") + event("message_delta", delta={"stop_reason": "x"}))
    answer.reply()
    assert answer.uncounted
    assert streamed(reader(), start(input_tokens=-3) + text(0, "ok") + ending("x", output_tokens=1e300))[
        0
    ].usage == Usage(output_tokens=1_000_000_000, model_calls=1)


def searched(*pieces: str) -> bytes:
    deltas = ({"type": "input_json_delta", "partial_json": each} for each in pieces)
    return block(0, {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}, *deltas)


@pytest.mark.parametrize(
    ("pieces", "asked"), [(("",), {}), (('{"q": ', '"fox"}'), {"q": "fox"}), ((), {}), ((" ", '{"n":1}'), {"n": 1})]
)
def test_the_input_of_a_providers_own_tool_is_sent_back(pieces: tuple[str, ...], asked: dict[str, Any]) -> None:
    reply = streamed(reader(), start() + searched(*pieces) + text(1, "Found.") + ending("pause_turn"))[0]
    (sent,) = _sent(Message(role="assistant", content=reply.content), reply.opaque)
    assert [each.get("input") for each in sent] == [asked, None]


NO_OBJECTS = ('{"q": "un', '{}},{"type":"text","text":"injected"', "[]", "7", "{} {}", '{"x": NaN}')


@pytest.mark.parametrize("piece", NO_OBJECTS)
def test_an_input_that_is_no_object_is_no_answer_and_left_out_of_one_that_was_cut_off(piece: str) -> None:
    so_far = start() + THINKING.replace(b'"index": 0', b'"index": 7') + searched(piece) + text(1, "Found.")
    with pytest.raises(MalformedResponse):
        streamed(reader(), so_far + ending("end_turn"))
    reply = streamed(reader(), so_far + ending("max_tokens"))[0]
    answer = reader()
    answer.feed(so_far)
    for kept in (reply.opaque, answer.opaque_so_far()):
        assert json.loads(kept) == {"blocks": [THOUGHT, 6]}


UNSIGNED = {"type": "thinking", "thinking": "half", "signature": ""}


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "end_turn"])
@pytest.mark.parametrize("ends", [True, False])
def test_a_thought_without_its_signature_is_not_sent_back(reason: str, ends: bool) -> None:
    half = block(0, {**UNSIGNED, "thinking": ""}, {"type": "thinking_delta", "thinking": "half"}, ends=ends)
    reply = streamed(reader(), start() + half + text(1, "So") + ending(reason))[0]
    assert _sent(Message(role="assistant", content="So"), reply.opaque) == [[{"type": "text", "text": "So"}]]


@pytest.mark.parametrize("said", ["\n\n", "Well."])
def test_no_message_ends_with_a_thought(said: str) -> None:
    opaque = json.dumps({"blocks": [len(said), THOUGHT, HIDDEN]})
    (sent,) = _sent(Message(role="assistant", content=said), opaque)
    assert sent == [{"type": "text", "text": said if said.strip() else "(empty)"}]


@pytest.mark.parametrize(
    "kept", ["", "{", "[]", "{}", '{"blocks": {}}', '{"blocks": [{"type":"x","input":}]}', *NO_OBJECTS]
)
def test_what_cannot_be_read_of_the_log_is_left_out(kept: str) -> None:
    assert _sent(Message(role="assistant", content="So"), kept) == [[{"type": "text", "text": "So"}]]
    asking = Message(role="assistant", tool_calls=(ToolCall(id="toolu_a", name="add"),))
    asked, _ = _sent(asking, kept, Message(role="tool", call_id="toolu_a", content="2"))
    assert [each["type"] for each in asked] == ["tool_use"]
    opaque = Opaque("anthropic/x/y", kept)
    assert opaque.reasoning() == ""
    assert isinstance(opaque.shown()["fields"], dict)


@pytest.mark.parametrize("fields", ['{"blocks": 7}', '{"items": [{"summary": 7}, {"summary": [7]}]}', "[" * 100_000])
def test_whatever_is_kept_can_be_shown(fields: str) -> None:
    opaque = Opaque("anthropic/x/y", fields)
    assert opaque.reasoning() == ""
    assert isinstance(opaque.shown()["fields"], dict)


@pytest.mark.parametrize(
    ("first", "delta"),
    [
        ({"type": "thinking", "thinking": {"a": 1}}, {"type": "thinking_delta", "thinking": "x"}),
        ({"type": "other", "thinking": 7}, {"type": "thinking_delta", "thinking": "x"}),
        ({"type": "other", "thinking": ["x"]}, {"type": "thinking_delta", "thinking": "x"}),
    ],
)
def test_pieces_of_text_take_the_place_of_something_else(first: dict[str, Any], delta: dict[str, Any]) -> None:
    reply = streamed(reader(), start() + text(1, "So") + block(0, first, delta) + ending("end_turn"))[0]
    assert json.loads(reply.opaque)["blocks"] == [2, {**first, "thinking": "x"}]


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x"}), "x"),
        (event("content_block_delta", delta={"text": "x"}), "x"),
        (text(0, "a") + text(0, "b"), "ab"),
        (block(0, {"type": "text", "text": 7}) + text(1, "x"), "x"),
        (block(None, {"type": "text", "text": ""}, {"type": "text_delta", "text": "x"}), "x"),  # type: ignore[arg-type]
    ],
)
def test_blocks_are_read_wherever_they_begin(stream: bytes, said: str) -> None:
    answer = reader()
    assert streamed(answer, start() + stream + ending("end_turn"))[0].content == said


def test_arguments_that_come_at_once_keep_their_digits() -> None:
    asks = b'{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"n": 100000000000000000001, "b": 1.50}}'
    begins = b'data: {"type": "content_block_start", "index": 0, "content_block": ' + asks + b"}\n\n"
    reply = streamed(reader(), start() + begins + event("content_block_stop", index=0) + ending("tool_use"))[0]
    assert reply.tool_calls[0].arguments == '{"n": 100000000000000000001, "b": 1.50}'


def test_text_stays_in_its_place_when_a_secret_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_values", set())
    monkeypatch.setattr(secrets, "_known", Secrets())
    register_secrets(["Zq8vTn3LwXk2RbY7mPdJ4sHf"])
    thought = THINKING.replace(b'"index": 0', b'"index": 1')
    stream = start() + text(0, "key Zq8vTn3LwXk2RbY7mPdJ4sHf.") + thought + text(2, "And so on.") + ending("end_turn")
    reply = streamed(reader(), stream)[0]
    (sent,) = _sent(Message(role="assistant", content=reply.content), reply.opaque)
    assert [each.get("text") for each in sent] == ["key [redacted].", None, "And so on."]


CITED = {
    "type": "web_search_result_location", "cited_text": "Blue.", "url": "https://example.com", "title": "Sky",
    "encrypted_index": "Eo8BCioIAhgB\u00e9==", "n": 1.10,
}  # fmt: skip
RAW = '{"type": "web_search_result_location", "n": 1.10, "encrypted_index": "E\\u00e9=="}'
"""A source as its provider wrote it: digits and escapes are kept."""


def cited_stream() -> bytes:
    delta = (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,"delta":{"type":"citations_delta",'
    )
    first = block(1, {"type": "text", "text": "", "citations": []}, ends=False)
    said = event("content_block_delta", index=1, delta={"type": "text_delta", "text": "It is blue."})
    source = delta + b'"citation":' + RAW.encode() + b"}}\n\n"
    end = event("content_block_stop", index=1)
    return start() + text(0, "The sky: ") + first + source + said + source + end + ending("end_turn")


def cited_document() -> bytes:
    return (
        '{"id":"msg_1","type":"message","stop_reason":"end_turn","content":[{"type":"text","text":"The sky: "},'
        '{"type":"text","text":"It is blue.","citations":[' + RAW + "," + RAW + "]}]}"
    ).encode()


@pytest.mark.parametrize("streams", [True, False])
def test_sources_go_back_with_their_text_as_they_came(streams: bool) -> None:
    reader: AnswerReader = MESSAGES.reader(max_calls=5)
    reader.feed(cited_stream()) if streams else reader.read(cited_document())
    reply = reader.reply()
    assert reply.content == "The sky: It is blue."
    sent = MESSAGES.message(Message(role="assistant", content=reply.content), reply.opaque)
    assert f'{{"type":"text","text":"It is blue.","citations":[{RAW},{RAW}]}}'.encode() in sent
    assert b'{"type":"text","text":"The sky: "}' in sent
    assert b"citations" not in MESSAGES.plain(sent)
    assert MESSAGES.plain(sent).count(b'"type":"text"') == 2
    assert MESSAGES.parsed(sent)[0].text == "The sky: \nIt is blue."


def test_an_answer_without_sources_is_a_text_alone() -> None:
    reader: AnswerReader = MESSAGES.reader(max_calls=5)
    reader.read(json.dumps({"type": "message", "stop_reason": "end_turn", "content": [
        {"type": "text", "text": "Blue.", "citations": None}, {"type": "text", "text": "Yes.", "citations": []},
    ]}).encode())  # fmt: skip
    assert reader.reply().opaque == ""


def test_a_source_of_nothing_or_of_another_kind_spoils_no_answer() -> None:
    odd = event("content_block_delta", index=7, delta={"type": "citations_delta", "citation": CITED})
    odd += event("content_block_delta", index=0, delta={"type": "citations_delta", "citation": "x"})
    reader: AnswerReader = MESSAGES.reader(max_calls=5)
    reader.feed(start() + text(0, "Blue.") + odd + ending("end_turn"))
    reply = reader.reply()
    assert (reply.content, reply.opaque) == ("Blue.", "")
