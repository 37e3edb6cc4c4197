"""OpenAI's Responses are read from bytes: any split gives the same reply, and what is cut off runs no tool."""

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
from palaver.secrets.redaction import register_secrets
from palaver.vocabulary.limits import limit_of
from tests.unit.answers import split, streamed
from workers.protocols import RESPONSES, AnswerReader

THOUGHT = (
    '{"id": "rs_1", "type": "reasoning", "z": 1.50, '
    '"summary": [{"type": "summary_text", "text": "Zw\\u00f6lf \U0001f98a?"}, '
    '{"type": "summary_text", "text": "So"}], "encrypted_content": "gAAAAA==", "n": 100000000000000000001}'
)
HIDDEN = '{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"B/B"}'
USAGE = {
    "input_tokens": 117,
    "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 7},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 12},
    "total_tokens": 147,
}


def event(kind: str, **more: Any) -> bytes:
    return raw_event(json.dumps({"type": kind, **more}, ensure_ascii=False))


def raw_event(text: str) -> bytes:
    return f"event: {json.loads(text)['type']}\ndata: {text}\n\n".encode()


def added(index: int, **item: Any) -> bytes:
    return event("response.output_item.added", output_index=index, item=item)


def done(index: int, raw: str) -> bytes:
    return raw_event(f'{{"type": "response.output_item.done", "output_index": {index}, "item": {raw}}}')


def message(index: int, *pieces: str, ends: bool = True, **more: Any) -> bytes:
    deltas = (event("response.output_text.delta", output_index=index, content_index=0, delta=each) for each in pieces)
    content = [{"type": "output_text", "text": "".join(pieces), "annotations": []}]
    whole = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content, **more}
    return (
        added(index, type="message", id="msg_1", role="assistant", content=[], **more)
        + b"".join(deltas)
        + (done(index, json.dumps(whole)) if ends else b"")
    )


def call(index: int, call_id: str, *pieces: str, ends: bool = True) -> bytes:
    head = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id, "name": "add"}
    deltas = (event("response.function_call_arguments.delta", output_index=index, delta=each) for each in pieces)
    whole = head | {"arguments": "".join(pieces), "status": "completed"}
    return added(index, **head, arguments="") + b"".join(deltas) + (done(index, json.dumps(whole)) if ends else b"")


def start() -> bytes:
    first = event("response.created", response={"id": "resp_1", "status": "in_progress", "output": []})
    return first + event("response.in_progress", response={"id": "resp_1", "output": []})


def ending(status: str = "completed", **more: Any) -> bytes:
    response = {"id": "resp_1", "status": status, "error": None, "output": [], "usage": USAGE, **more}
    return event(f"response.{status}", response=response)


def summary(index: int, part: int, *pieces: str) -> bytes:
    return event("response.reasoning_summary_part.added", output_index=index, summary_index=part) + b"".join(
        event("response.reasoning_summary_text.delta", output_index=index, summary_index=part, delta=each)
        for each in pieces
    )


THINKING = (
    added(0, type="reasoning", id="rs_1", summary=[])
    + summary(0, 0, "Zwölf ", "🦊?")
    + summary(0, 1, "So")
    + done(0, THOUGHT)
)
TURN = (
    start()
    + THINKING
    + message(1, "I will ", "add.", phase="commentary")
    + call(2, "call_a", '{"x": ', "1}")
    + added(3, type="reasoning", id="rs_2", summary=[])
    + done(3, HIDDEN)
    + call(4, "call_b")
    + ending()
)


def reader() -> AnswerReader:
    return RESPONSES.reader(max_calls=10)


@given(st.lists(st.integers(min_value=0, max_value=5000)))
def test_any_split_gives_the_same_reply(cuts: list[int]) -> None:
    reply, said, thoughts = streamed(reader(), *split(b": hello\n\n" + TURN, cuts))
    assert reply.content == said == "I will add."
    assert thoughts == "Zwölf 🦊?\n\nSo"
    assert reply.finish_reason == "tool_calls"
    assert reply.tool_calls == (
        ToolCall(id="call_a", name="add", arguments='{"x": 1}'),
        ToolCall(id="call_b", name="add", arguments="{}"),
    )
    assert reply.usage == Usage(
        input_tokens=117, cached_tokens=100, cache_write_tokens=7, output_tokens=30, reasoning_tokens=12, model_calls=1
    )
    assert reply.opaque == f'{{"items":[{THOUGHT},[11,"commentary"],"call_a",{HIDDEN},"call_b"]}}'
    assert Opaque("responses/x/y", reply.opaque).reasoning() == thoughts


def test_a_whole_answer_is_what_a_stream_is() -> None:
    output = [
        json.loads(line[6:])["item"] for line in TURN.split(b"\n") if b"output_item.done" in line and line[:1] == b"d"
    ]
    body = json.dumps({"id": "resp_1", "status": "completed", "error": None, "output": [0] * 5, "usage": USAGE})
    raws = [json.dumps(item) for item in output]
    raws[0], raws[3] = THOUGHT, HIDDEN
    answer = reader()
    assert answer.read(body.replace("[0, 0, 0, 0, 0]", f"[{', '.join(raws)}]").encode()) == "I will add."
    assert answer.reply() == streamed(reader(), TURN)[0]


def test_one_that_says_everything_at_its_end_is_read() -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": "ok"}]}
    assert streamed(reader(), start() + ending(output=[item]))[1] == "ok"
    # Items without deltas, as some gateways send them.
    called = {"type": "function_call", "call_id": "call_a", "name": "add", "arguments": '{"x":2}'}
    reply, said, thoughts = streamed(
        reader(), start() + done(0, THOUGHT) + done(1, json.dumps(item)) + done(2, json.dumps(called)) + ending()
    )
    assert (said, thoughts) == ("ok", "Zwölf 🦊?\n\nSo")
    assert reply.tool_calls[0].arguments == '{"x":2}'


@pytest.mark.slow
def test_a_cut_at_every_byte_keeps_what_is_whole_and_runs_nothing() -> None:
    first = TURN.index(b"event: response.output_item.added", TURN.index(THOUGHT.encode()))
    for end in range(TURN.index(b'"type": "response.completed"')):
        answer = reader()
        said, _ = answer.feed(TURN[:end])
        with pytest.raises((TruncatedStream, MalformedResponse)):
            answer.reply()
        kept = answer.opaque_so_far()
        if end >= first:
            assert json.loads(kept)["items"][0] == json.loads(THOUGHT)
        if said:
            sent = RESPONSES.message(Message(role="assistant", content=said, partial=True), kept)
            items = json.loads(b"[%b]" % sent)
            assert THOUGHT.encode() in sent
            assert [each.get("type") for each in items] == ["reasoning", None]
            assert (items[1]["content"], items[1]["phase"]) == (said, "commentary")


def test_what_is_sent_back_is_what_came_in_its_order() -> None:
    reply = streamed(reader(), TURN)[0]
    asking = Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)
    results = [Message(role="tool", call_id=each.id, name="add", content="2") for each in reply.tool_calls]
    asks, *answers = RESPONSES.turn(asking, results, reply.opaque, place=7)
    assert asks.startswith(THOUGHT.encode())
    assert HIDDEN.encode() in asks
    items = json.loads(b"[%b]" % asks)
    kinds = ["reasoning", None, "function_call", "reasoning", "function_call"]
    assert [each.get("type") for each in items] == kinds
    assert [items[2]["call_id"], items[4]["call_id"]] == [json.loads(each)["call_id"] for each in answers]
    assert all("id" not in each for each in (items[1], items[2], items[4]))
    without = RESPONSES.turn(asking, results, place=7)
    assert json.loads(b"[%b]" % RESPONSES.plain(asks)) == [
        each | ({"phase": "commentary"} if "role" in each else {}) for each in json.loads(b"[%b]" % without[0])
    ]
    assert [RESPONSES.plain(each) for each in answers] == answers


def test_a_thought_that_led_to_nothing_is_not_sent() -> None:
    stream = start() + message(0, "Hm") + added(1, type="reasoning", summary=[]) + done(1, HIDDEN)
    reply = streamed(reader(), stream + ending("incomplete", incomplete_details={"reason": "max_output_tokens"}))[0]
    assert reply.finish_reason == "length"
    assert json.loads(RESPONSES.message(Message(role="assistant", content="Hm"), reply.opaque)) == {
        "role": "assistant", "content": "Hm",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("details", "finish"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "content_filter"}, "content_filter"),
        ({"reason": "steered"}, "length"),
        (None, "length"),
    ],
)
def test_of_an_answer_that_is_incomplete_no_call_is_made(details: Any, finish: str) -> None:
    stream = start() + THINKING + call(1, "call_a", '{"x": ', ends=False)
    reply = streamed(reader(), stream + ending("incomplete", incomplete_details=details))[0]
    assert (reply.finish_reason, reply.tool_calls) == (finish, ())


def test_a_refusal_is_told_and_ends_the_answer() -> None:
    item = json.dumps({"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]})
    first = added(0, type="message", content=[])
    delta = event("response.refusal.delta", output_index=0, content_index=0, delta="I will not.")
    for stream in (first + delta + done(0, item), first + done(0, item), done(0, item)):
        reply, said, _ = streamed(reader(), start() + stream + ending())
        assert (reply.content, said, reply.finish_reason) == ("I will not.", "I will not.", "content_filter")


FLAT = event("error", code="rate_limit_exceeded", message="Slow down", param=None, sequence_number=3)


@pytest.mark.parametrize(
    ("last", "error_class", "code"),
    [
        (ending("failed", error={"code": "server_error", "message": "…"}), "provider_error", "x.server_error"),
        (
            ending("failed", error={"code": "rate_limit_exceeded", "message": "…"}),
            "rate_limited",
            "x.rate_limit_exceeded",
        ),
        (ending("failed", error={"code": "invalid_prompt", "message": "…"}), "invalid_request", "x.invalid_prompt"),
        (
            ending("failed", id="x" * 100_000, error={"code": "rate_limit_exceeded", "message": "…"}),
            "rate_limited",
            "x.rate_limit_exceeded",
        ),
        (ending("failed", error={"code": "bio_policy", "message": "…"}), "content_filter", "x.bio_policy"),
        (ending("failed", error={"code": "context_length_exceeded", "message": "…"}), "context_window", None),
        (ending("failed", error=None), "provider_error", None),
        (FLAT, "rate_limited", "x.rate_limit_exceeded"),
        (event("error", error={"type": "server_error", "message": "…"}), "provider_error", "x.server_error"),
        (b'data: {"error": {"message": "Overloaded", "code": 529}}\n\n', "rate_limited", None),
    ],
)
def test_an_error_in_the_stream_is_judged_by_its_code(last: bytes, error_class: str, code: str | None) -> None:
    with pytest.raises(ProviderHTTPError) as raised:
        streamed(reader(), start() + message(0, "so", ends=False) + last)
    failure = classify(raised.value, source="model", provider="x")
    assert failure.error_class == error_class
    assert code in (None, failure.code)


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"", TruncatedStream),
        (start() + message(0, "so far"), TruncatedStream),
        (start() + ending(), EmptyCompletion),
        (start() + THINKING + ending(), EmptyCompletion),
        (start() + call(0, "call_a", "{", ends=False) + ending(), MalformedResponse),
        (event("response.function_call_arguments.delta", output_index=0, delta="{}") + ending(), MalformedResponse),
        (b"<html>Sign in</html>\n", MalformedResponse),
        (b"hello\n", MalformedResponse),
        (b"data: {\n\n", MalformedResponse),
        (b"data: []\n\n", MalformedResponse),
        (b'data: {"no": "type"}\n\n', TruncatedStream),
        (b"".join(call(i, f"call_{i}") for i in range(11)), TooManyToolCalls),
        (b"".join(message(i) for i in range(limit_of("answer_blocks") + 1)), ResponseTooLarge),
        (message(0, "x" * 700_000, "x" * 700_000, ends=False), ResponseTooLarge),
        (b"".join(done(i, json.dumps({"type": "reasoning", "e": "x" * 200_000})) for i in range(2)), ResponseTooLarge),
        (b"data: " + b"x" * (limit_of("answer_line") + 1), ResponseTooLarge),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(stream: bytes, error: type[ProviderError]) -> None:
    with pytest.raises(error):
        streamed(reader(), stream)


@pytest.mark.parametrize(
    ("stream", "said", "called"),
    [
        (event("response.output_text.delta", output_index=0, delta="x"), "x", ()),
        (event("response.output_text.delta", delta="x"), "x", ()),
        (message(0, "a") + message(0, "b"), "ab", ()),
        (message(0, "a") + done(0, '{"type":"message","content":[]}'), "a", ()),
        (added(None, type="message") + message(1, "a"), "a", ()),  # type: ignore[arg-type]
        (call(0, "call_c") + event("response.output_text.delta", output_index=0, delta="x"), "x", ("call_c",)),
        (start() + call(0, "call_a", "{}", ends=False), "", ("call_a",)),
        (event("response.output_text.done", output_index=0, text="x"), "x", ()),
    ],
)
def test_items_are_read_wherever_they_begin_and_end(stream: bytes, said: str, called: tuple[str, ...]) -> None:
    reply = streamed(reader(), stream + ending())[0]
    assert (reply.content, tuple(each.id for each in reply.tool_calls)) == (said, called)


def test_items_are_known_by_their_names_where_they_have_no_numbers() -> None:
    """As llama.cpp's server writes them."""
    said = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    made = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "add", "arguments": ""}
    reply, told, _ = streamed(
        reader(),
        event("response.output_item.added", item=said),
        *(event("response.output_text.delta", item_id="msg_1", delta=piece) for piece in ("h", "i")),
        event("response.output_item.done", item={**said, "content": [{"type": "output_text", "text": "hi"}]}),
        event("response.output_item.added", item=made),
        *(event("response.function_call_arguments.delta", item_id="fc_1", delta=piece) for piece in ('{"x"', ":1}")),
        event("response.output_item.done", item={**made, "arguments": '{"x":1}'}),
        ending(),
    )
    assert (reply.content, told) == ("hi", "hi")
    assert reply.tool_calls == (ToolCall(id="call_1", name="add", arguments='{"x":1}'),)


def test_nobody_counted() -> None:
    answer = reader()
    answer.feed(start() + message(0, "ok") + ending(usage=None))
    answer.reply()
    assert answer.uncounted
    strange = {"input_tokens": -3, "input_tokens_details": {"cached_tokens": 5}, "output_tokens": 1e300}
    assert streamed(reader(), message(0, "ok") + ending(usage=strange))[0].usage == Usage(
        output_tokens=1_000_000_000, model_calls=1
    )


def test_what_has_a_secret_is_not_kept() -> None:
    register_secrets(("sk-of-this-process-123456",))
    item = '{"type":"reasoning","summary":[],"encrypted_content":"sk-of-this-process-123456"}'
    assert streamed(reader(), done(0, item) + message(1, "ok") + ending())[0].opaque == ""
