"""Reading a model's answer: any split gives the same reply; a broken one is never taken for a whole one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import EmptyCompletion, MalformedResponse, ProviderHTTPError, TruncatedStream, classify
from palaver.models import ToolCall
from workers.completion import Completion, Reply


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"choices": choices, **more}, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
USAGE = chunk(usage={"prompt_tokens": 12, "completion_tokens": 5})
ANSWER = chunk({"role": "assistant", "content": ""}) + chunk({"content": "Zwölf"}) + chunk({"content": " 🦊 Füchse"})
CALLS = (
    chunk({"tool_calls": [{"index": 0, "id": "call_a", "function": {"name": "add", "arguments": '{"x"'}}]})
    + chunk({"tool_calls": [{"index": 1, "id": "call_b", "function": {"name": "sub", "arguments": ""}}]})
    + chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]})
)


def read(*pieces: bytes) -> tuple[Reply, str]:
    completion = Completion()
    shown = "".join(completion.feed(piece) for piece in pieces)
    return completion.reply(), shown


@given(st.lists(st.integers(min_value=0, max_value=700)))
def test_any_split_gives_the_same_reply(cuts: list[int]) -> None:
    stream = b": hello\n\n" + ANSWER + CALLS + chunk({}, "tool_calls") + USAGE + DONE
    places = [0, *sorted(cut % len(stream) for cut in cuts), len(stream)]
    reply, shown = read(*(stream[a:b] for a, b in pairwise(places)))
    assert reply.content == shown == "Zwölf 🦊 Füchse"
    assert reply.tool_calls == (
        ToolCall(id="call_a", name="add", arguments='{"x": 1}'),
        ToolCall(id="call_b", name="sub", arguments="{}"),
    )
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.finish_reason) == (12, 5, "tool_calls")


@given(st.integers(min_value=0))
def test_any_truncation_is_noticed(cut: int) -> None:
    stream = ANSWER + chunk({}, "stop") + DONE
    whole = stream.index(b'"stop"')
    with pytest.raises((TruncatedStream, MalformedResponse)):
        read(stream[: cut % whole])


def test_windows_line_ends_and_no_blank_after_the_colon() -> None:
    stream = (ANSWER + chunk({}, "stop") + DONE).replace(b"\n", b"\r\n").replace(b"data: ", b"data:")
    assert read(stream)[0].content == "Zwölf 🦊 Füchse"


def test_an_answer_in_one_piece() -> None:
    body = {
        "choices": [
            {
                "message": {"content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    completion = Completion()
    completion.read(json.dumps(body).encode())
    reply = completion.reply()
    assert reply.tool_calls == (ToolCall(id="c", name="f"),)
    assert reply.usage.output_tokens == 4


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), ("a b", "é"), ("x" * 65, None)])
def test_call_ids_are_made_usable_and_unique(ids: tuple[Any, Any]) -> None:
    parts = [{"index": i, "id": each, "function": {"name": "f", "arguments": "{}"}} for i, each in enumerate(ids)]
    reply, _ = read(chunk({"tool_calls": parts}), chunk({}, "tool_calls"), DONE)
    names = [call.id for call in reply.tool_calls]
    assert len(set(names)) == 2
    assert all(name.isascii() and 0 < len(name) <= 64 for name in names)


def test_an_error_inside_a_stream_is_an_error() -> None:
    error = b'data: {"error": {"message": "slow down", "type": "rate_limit_error"}}\n\n'
    with pytest.raises(ProviderHTTPError) as raised:
        read(ANSWER, error)
    assert classify(raised.value, source="model").error_class == "rate_limited"


@pytest.mark.parametrize(
    "stream",
    [
        b"data: {not json}\n\n",
        b"data: [1, 2]\n\n",
        b'data: {"choices": [{"delta": {"content": 7}}]}\n\n',
        b'data: {"choices": {"delta": 1}}\n\n',
        b"<html>busy</html>\n",
        b"data: " + b"x" * (2 << 20),
    ],
)
def test_what_is_no_chunk_is_malformed(stream: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read(stream)


def test_nothing_at_all_is_empty_or_truncated() -> None:
    with pytest.raises(EmptyCompletion):
        read(DONE)
    with pytest.raises(EmptyCompletion):
        read(chunk({}, "stop"), DONE)
    with pytest.raises(TruncatedStream):
        read()
    assert read(chunk({}, "content_filter"), DONE)[0].content == ""


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_fail_otherwise(data: bytes) -> None:
    for attempt in (Completion.feed, Completion.read):
        completion = Completion()
        try:
            attempt(completion, data)
            completion.reply()
        except (MalformedResponse, EmptyCompletion, TruncatedStream, ProviderHTTPError):
            pass
