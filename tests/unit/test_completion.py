"""Reading a model's answer: any split gives the same reply; a broken one is never taken for a whole one."""

from __future__ import annotations

import json
from itertools import pairwise
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
    ToolCallTooLarge,
    TooManyToolCalls,
    TruncatedStream,
    classify,
)
from palaver.schemas.models import ToolCall, Usage
from palaver.vocabulary.limits import exceeded, limit_of
from workers.protocols import ModelReply
from workers.protocols.chat_completions.answer import Completion


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


def read(*pieces: bytes) -> tuple[ModelReply, str]:
    completion = Completion()
    shown = "".join(completion.feed(piece)[0] for piece in pieces)
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


@given(st.lists(st.integers(min_value=0, max_value=700)))
def test_any_split_gives_the_same_reasoning_apart_from_the_text(cuts: list[int]) -> None:
    # Some servers say it under both names.
    thoughts = b"".join(chunk({"reasoning_content": text, "reasoning": text}) for text in ("Hm, ", "…"))
    stream = thoughts + ANSWER + chunk({}, "stop") + DONE
    places = [0, *sorted(cut % len(stream) for cut in cuts), len(stream)]
    completion = Completion()
    pieces = [completion.feed(stream[a:b]) for a, b in pairwise(places)]
    assert ["".join(each) for each in zip(*pieces, strict=True)] == ["Zwölf 🦊 Füchse", "Hm, …"]
    completion.reply()


@given(st.integers(min_value=0))
def test_any_truncation_is_noticed(cut: int) -> None:
    stream = ANSWER + chunk({}, "stop") + DONE
    whole = stream.index(b'"stop"')
    with pytest.raises((TruncatedStream, MalformedResponse)):
        read(stream[: cut % whole])


def usage_of(*pieces: bytes) -> Usage:
    return read(*pieces, DONE)[0].usage


def test_cached_tokens_are_among_the_input() -> None:
    said = {"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
    assert usage_of(ANSWER, chunk({}, "stop"), chunk(usage=said)) == Usage(
        input_tokens=12, cached_tokens=8, output_tokens=5, model_calls=1
    )


def test_reasoning_tokens_are_among_the_output() -> None:
    for said, counted in ((3, 3), (9, 5), (None, 0)):
        usage = {"prompt_tokens": 12, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": said}}
        found = usage_of(ANSWER, chunk({}, "stop"), chunk(usage=usage))
        assert (found.output_tokens, found.reasoning_tokens) == (5, counted)


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (
            {"prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 60}},
            {"cached_tokens": 3, "cache_write_tokens": 60},
        ),
        (
            {"prompt_tokens_details": {"cached_tokens": 70, "cache_write_tokens": 60}},
            {"cached_tokens": 70, "cache_write_tokens": 30},
        ),
        ({"cached_tokens": 64}, {"cached_tokens": 64}),
        ({"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}, {"cached_tokens": 64}),
        (
            {"total_tokens": 405, "completion_tokens_details": {"reasoning_tokens": 300}},
            {"output_tokens": 305, "reasoning_tokens": 300},
        ),
        ({"total_tokens": 105}, {"output_tokens": 5}),
        ({"total_tokens": 3}, {"output_tokens": 5}),
    ],
)
def test_tokens_are_counted_where_providers_put_them(said: dict[str, Any], counted: dict[str, int]) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, **said}
    told = {"input_tokens": 100, "output_tokens": 5, "model_calls": 1, **counted}
    assert usage_of(ANSWER, chunk({}, "stop"), chunk(usage=usage)) == Usage(**told)


def test_a_refusal_ends_as_one_with_its_words() -> None:
    reply, shown = read(chunk({"refusal": "I will "}), chunk({"refusal": "not."}), chunk({}, "stop"), DONE)
    assert (reply.finish_reason, reply.content, shown) == ("content_filter", "I will not.", "I will not.")
    whole = Completion()
    message = {"role": "assistant", "content": None, "refusal": "I will not."}
    whole.read(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())
    assert whole.reply().finish_reason == "content_filter"
    assert read(ANSWER, chunk({"refusal": "But"}), chunk({}, "stop"), DONE)[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}, (5, 5, 0)),
        ({"prompt_tokens": 5, "prompt_tokens_details": None}, (5, 0, 0)),
        ({"prompt_tokens": -5, "completion_tokens": 1e300}, (0, 0, 1_000_000_000)),
        ({"prompt_tokens": "12", "completion_tokens": 3.0}, (12, 0, 3)),
    ],
)
def test_a_nonsensical_count_does_not_spoil_the_sum(said: dict[str, Any], tokens: tuple[int, ...]) -> None:
    usage = usage_of(ANSWER, chunk({}, "stop"), chunk(usage=said))
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == tokens


def test_a_whole_answer_without_a_count_says_so() -> None:
    for more, uncounted in ((b"", True), (USAGE, False)):
        completion = Completion()
        completion.feed(ANSWER + chunk({}, "stop") + more + DONE)
        completion.reply()
        assert completion.uncounted is uncounted


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


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), ("a b", "é"), ("x" * 65, None), ("call_1",) * 2])
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


@pytest.mark.parametrize("stream", [b"data: {not json}\n\n", b"data: [1, 2]\n\n", b"<html>busy</html>\n"])
def test_what_is_no_chunk_is_malformed(stream: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read(stream)


@pytest.mark.parametrize(
    "stream", [b"<html>", b"\x1f\x8b\x08 gzip", b"choices=1\n\n", b"\xff\n", b"data: hello\n\n", b"data: 7\n\n"]
)
def test_something_else_than_a_stream_is_malformed_and_not_truncated(stream: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read(stream)


def test_lines_that_are_no_data_are_left_out() -> None:
    lines = b": hello\nretry: 5\nid: 7\nevent: message\nunknown: field\n"
    assert read(lines + ANSWER + lines + chunk({}, "stop") + DONE)[0].content == "Zwölf 🦊 Füchse"
    with pytest.raises(TruncatedStream):
        read(b": hello\n\n")


@pytest.mark.parametrize(
    "error",
    [
        b'event: error\ndata: {"message": "x", "type": "overloaded_error"}\n\n',
        b'error: {"message": "x", "type": "overloaded_error"}\n\n',
        b'data: {"error": {"code": 529}}\n\n',
    ],
)
def test_an_error_is_told_in_several_ways(error: bytes) -> None:
    with pytest.raises(ProviderHTTPError) as raised:
        read(ANSWER, error)
    assert raised.value.status == 200
    assert classify(raised.value, source="model").error_class == "rate_limited"


@pytest.mark.parametrize(
    ("said", "means"),
    [
        *(("stop", "stop"), ("because", "because"), ("length", "length"), ("max_tokens", "length")),
        *(("model_length", "length"), ("content_filter", "content_filter"), ("SAFETY", "content_filter")),
        *(("refusal", "content_filter"), ("sensitive", "content_filter")),
    ],
)
def test_providers_have_several_words_for_an_end(said: str, means: str) -> None:
    assert read(ANSWER, chunk({}, said), DONE)[0].finish_reason == means


def test_an_answer_that_says_it_failed_or_lacks_its_calls_is_no_answer() -> None:
    for said in ("error", "network_error", "insufficient_system_resource"):
        with pytest.raises(ProviderError, match="broke off"):
            read(ANSWER, chunk({}, said), DONE)
    with pytest.raises(MalformedResponse, match="has none"):
        read(ANSWER, chunk({}, "tool_calls"), DONE)


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


def call(index: int | None = None, name: str = "add", arguments: str = "{}") -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}} | ({} if index is None else {"index": index})


LINE = limit_of("answer_line")
TOO_LARGE: list[tuple[str, bytes, type[ProviderError]]] = [
    ("tool_calls", chunk({"tool_calls": [call(i) for i in range(129)]}), TooManyToolCalls),
    ("tool_calls", chunk({"tool_calls": [{}] * 20_000}), TooManyToolCalls),
    ("tool_calls", chunk({"tool_calls": [{"index": 0}] * 20_000}), TooManyToolCalls),
    ("tool_calls", chunk({"tool_calls": [{"function": {"name": "f"}}]}) * 129, TooManyToolCalls),
    ("tool_name", chunk({"tool_calls": [call(0, name="x" * 129)]}), ToolCallTooLarge),
    (
        "tool_name",
        b"".join(chunk({"tool_calls": [call(0, name=f"{i:05}", arguments="")]}) for i in range(26)),
        ToolCallTooLarge,
    ),
    ("tool_arguments", chunk({"tool_calls": [call(0, "", "x" * 1000)]}) * 270, ToolCallTooLarge),
    (
        "tool_arguments_together",
        b"".join(chunk({"tool_calls": [call(i, arguments="x" * 200_000)]}) for i in range(6)),
        ToolCallTooLarge,
    ),
    ("answer_text", chunk({"content": "x" * 100_000}) * 11, ResponseTooLarge),
    ("answer_choices", b'data: {"choices": [' + b"{}," * 16 + b"{}]}\n\n", ResponseTooLarge),
    ("answer_values", b"data: [" + b"[]," * 200_000 + b"[]]\n\n", ResponseTooLarge),
    ("answer_line", b"data: " + b"x" * LINE, ResponseTooLarge),
    ("answer_line", b": " + b"x" * LINE, ResponseTooLarge),
]


@pytest.mark.parametrize(("limit", "stream", "error"), TOO_LARGE)
def test_what_is_beyond_a_limit_is_refused_while_it_is_read_and_counted(
    limit: str, stream: bytes, error: type[ProviderError]
) -> None:
    before = exceeded[limit]
    with pytest.raises(error) as raised:
        read(*(stream[start : start + 16_384] for start in range(0, len(stream), 16_384)))
    failure = classify(raised.value, source="model")
    assert exceeded[limit] == before + 1
    assert (failure.error_class, failure.retryable) == ("provider_error", False)


def test_what_is_at_the_limits_is_taken() -> None:
    calls = [chunk({"tool_calls": [call(i, name="x" * 128, arguments="x" * 4096)]}) for i in range(128)]
    text = chunk({"content": "x" * (limit_of("answer_text") // 2)})
    reply, _ = read(*calls, text, text, chunk({}, "stop"))
    assert len(reply.tool_calls) == 128
    assert len(reply.content) == limit_of("answer_text")
    assert len({each.id for each in reply.tool_calls}) == 128
    single, _ = read(
        chunk({"tool_calls": [call(0, arguments="x" * limit_of("tool_arguments"))]}), chunk({}, "tool_calls")
    )
    assert len(single.tool_calls[0].arguments) == limit_of("tool_arguments")


def test_a_whole_answer_has_the_same_limits() -> None:
    def answer(**message: Any) -> bytes:
        return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()

    for body, error in (
        (answer(tool_calls=[{}] * 129), TooManyToolCalls),
        (answer(tool_calls=[call(name="x" * 129)]), ToolCallTooLarge),
        (answer(tool_calls=[call(arguments="x" * 300_000)]), ToolCallTooLarge),
        (answer(content="x" * (limit_of("answer_text") + 1)), ResponseTooLarge),
        (b'{"choices": [' + b"{}," * 16 + b"{}]}", ResponseTooLarge),
        (b"[" + b"{}," * 200_000 + b"{}]", ResponseTooLarge),
    ):
        with pytest.raises(error):
            Completion().read(body)


def test_what_escapes_make_large_is_refused() -> None:
    with pytest.raises(ResponseTooLarge, match="as JSON, the answer has more than"):
        read(*[chunk({"content": "\x01" * 50_000})] * 8, chunk({}, "stop"))


def test_a_provider_may_allow_fewer_calls() -> None:
    completion = Completion(max_calls=2)
    completion.feed(chunk({"tool_calls": [call(0), call(1)]}))
    with pytest.raises(TooManyToolCalls, match="more than 2 tool calls; max_tool_calls"):
        completion.feed(chunk({"tool_calls": [call(2)]}))


@pytest.mark.parametrize("index", [-1, 0, 7, 10**9, 2**63 - 1])
def test_an_index_only_says_the_order(index: int) -> None:
    reply, _ = read(chunk({"tool_calls": [call(index, "b"), call(-2, "a")]}), chunk({}, "tool_calls"))
    assert [(each.id, each.name) for each in reply.tool_calls] == [("call00000", "a"), ("call00001", "b")]


@pytest.mark.parametrize("index", [1.5, 1e300, True, [], {}, "x", "²", "9" * 5000])
def test_an_index_that_is_no_whole_number_is_none(index: Any) -> None:
    reply, _ = read(chunk({"tool_calls": [{**call(), "index": index}]}), chunk({}, "tool_calls"))
    assert [(each.name, each.arguments) for each in reply.tool_calls] == [("add", "{}")]


def test_nothing_that_follows_the_end_counts() -> None:
    reply, shown = read(ANSWER, chunk({}, "stop"), DONE + chunk({"content": " more"}) + b"<html>\n")
    assert reply.content == shown == "Zwölf 🦊 Füchse"
