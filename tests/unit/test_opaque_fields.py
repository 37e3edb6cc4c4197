"""What a provider wants back unchanged is gathered from an answer, and put back where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import ResponseTooLarge, classify
from palaver.schemas.models import Message, ToolCall
from palaver.secrets.redaction import REDACTED, register_secrets
from palaver.vocabulary.limits import exceeded, limit_of
from workers.protocols import CHAT_COMPLETIONS, ModelReply

SIGNED = '{"google":{"thought_signature":"c2ln","weight":1.50,"age":100000000000000000001,"a":1e2}}'
HIDDEN = '{"type":"reasoning.encrypted","data":"ZW5j","z":0.10,"index":1,"a":1.0}'
MORE = '"format":"anthropic-claude-v1","index":0'


def event(delta: str, finish: str = "null") -> bytes:
    return f'data: {{"choices": [{{"index": 0, "delta": {delta}, "finish_reason": {finish}}}]}}\n\n'.encode()


def ending(finish: str = "stop") -> bytes:
    return event("{}", f'"{finish}"') + b"data: [DONE]\n\n"


def streamed(*pieces: bytes) -> ModelReply:
    reader = CHAT_COMPLETIONS.reader(max_calls=10)
    for piece in pieces:
        reader.feed(piece)
    return reader.reply()


def whole(message: str) -> ModelReply:
    reader = CHAT_COMPLETIONS.reader(max_calls=10)
    reader.read(f'{{"choices": [{{"message": {message}, "finish_reason": "stop"}}]}}'.encode())
    return reader.reply()


def cut(text: str, places: Sequence[int]) -> Iterator[str]:
    ends = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return (text[a:b] for a, b in pairwise(ends))


CUTS = st.lists(st.integers(0, 2000), max_size=12)
SAID = st.text(max_size=40)


@pytest.mark.slow
@given(SAID, SAID, CUTS, CUTS, CUTS)
def test_any_split_of_fields_and_of_bytes_gives_what_a_whole_answer_does(
    thought: str, detail: str, thoughts: list[int], details: list[int], bytes_at: list[int]
) -> None:
    calls = [
        f'{{"index": {i}, "id": "c{i}", "type": "function", "function": {{"name": "f", "arguments": "{{}}"}}{extra}}}'
        for i, extra in enumerate((f', "extra_content": {SIGNED}', ""))
    ]
    pieces = [event(f'{{"reasoning_content": {json.dumps(each)}}}') for each in cut(thought, thoughts)]
    pieces += [
        event(f'{{"reasoning_details": [{{"type":"reasoning.text","text":{json.dumps(each)},{MORE}}}]}}')
        for each in cut(detail, details)
    ]
    pieces += [
        event(f'{{"reasoning_details": [{{"type":"reasoning.text",{MORE},"signature":"s"}}, {HIDDEN}]}}'),
        *(event(f'{{"content": null, "reasoning_content": null, "tool_calls": [{call}]}}') for call in calls),
        event(f'{{"content": "", "extra_content": {SIGNED}}}'),
        ending("tool_calls"),
    ]
    stream = b"".join(pieces)
    places = [0, *sorted(place % len(stream) for place in bytes_at), len(stream)]
    text = f'{{"type":"reasoning.text","text":{json.dumps(detail)},{MORE},"signature":"s"}}'
    complete = whole(
        f'{{"content": null, "reasoning_content": {json.dumps(thought)}, "reasoning_details": [{text}, {HIDDEN}], '
        f'"extra_content": {SIGNED}, "tool_calls": [{", ".join(calls)}]}}'
    )
    split = streamed(*(stream[a:b] for a, b in pairwise(places)))
    assert json.loads(split.opaque) == json.loads(complete.opaque)
    assert (split.opaque.count(SIGNED), split.opaque.count(HIDDEN)) == (2, 1)
    assert split.tool_calls == complete.tool_calls


def test_it_stands_where_it_was_in_the_next_request() -> None:
    call = f'{{"id": "c", "function": {{"name": "f", "arguments": "{{}}"}}, "extra_content": {SIGNED}}}'
    reply = whole(
        f'{{"content": "hm", "reasoning": "I think", "reasoning_details": [{HIDDEN}], "tool_calls": [{call}]}}'
    )
    asking = Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)
    sent, result = CHAT_COMPLETIONS.turn(asking, [Message(role="tool", call_id="c", content="2")], reply.opaque)
    assert f'"reasoning":"I think","reasoning_details":[{HIDDEN}]'.encode() in sent
    assert f'"function":{{"name":"f","arguments":"{{}}"}},"extra_content":{SIGNED}}}]'.encode() in sent
    assert json.loads(result) == {"role": "tool", "tool_call_id": "c", "content": "2"}
    said = whole(f'{{"content": "yes", "extra_content": {SIGNED}}}')
    text = CHAT_COMPLETIONS.message(Message(role="assistant", content="yes"), said.opaque)
    assert text == f'{{"role":"assistant","content":"yes","extra_content":{SIGNED}}}'.encode()
    assert CHAT_COMPLETIONS.parsed(text)[0] == Message(role="assistant", content="yes")


REDACTED_BLOCK = '{"type":"redacted_thinking","data":"ZW5j"}'
THOUGHTS = st.lists(st.one_of(st.none(), SAID), min_size=1, max_size=4)
"""Blocks in a row: a thought, or one that is hidden."""


@given(THOUGHTS, CUTS)
def test_blocks_of_thinking_come_in_pieces_and_each_ends_with_its_signature(
    thoughts: list[str | None], places: list[int]
) -> None:
    """As LiteLLM streams what Claude thinks, without an index."""
    pieces, blocks = [], []
    for number, thought in enumerate(thoughts):
        signed = f'"signature":"s{number}"'
        if thought is None:
            parts = [REDACTED_BLOCK]
        else:
            parts = [f'{{"type":"thinking","thinking":{json.dumps(each)}}}' for each in cut(thought, places)]
            parts.append(f'{{"type":"thinking","thinking":"",{signed}}}')
        blocks.append(
            parts[0] if thought is None else f'{{"type":"thinking","thinking":{json.dumps(thought)},{signed}}}'
        )
        pieces += [event(f'{{"content": "", "thinking_blocks": [{part}]}}') for part in parts]
    split = streamed(*pieces, event('{"content": "yes"}'), ending())
    complete = whole(f'{{"content": "yes", "thinking_blocks": [{",".join(blocks)}]}}')
    assert json.loads(split.opaque) == json.loads(complete.opaque)
    assert f'"thinking_blocks":[{",".join(blocks)}]' in complete.opaque


def test_most_answers_have_none() -> None:
    assert (
        whole('{"role": "assistant", "content": "yes", "reasoning_content": null, "reasoning_details": null}').opaque
        == ""
    )
    assert streamed(event('{"content": "yes"}'), ending()).opaque == ""


def test_that_there_was_no_thought_is_kept_too() -> None:
    """Some providers want the field back, be it empty."""
    assert whole('{"content": "yes", "reasoning_content": ""}').opaque == '{"reasoning_content":""}'


def test_an_answer_that_is_cut_off_keeps_its_thoughts_and_nothing_that_is_signed() -> None:
    reader = CHAT_COMPLETIONS.reader(max_calls=1)
    assert reader.opaque_so_far() == ""
    reader.feed(event('{"reasoning_content": "hm, "}'))
    reader.feed(event(f'{{"reasoning_content": "so", "extra_content": {SIGNED}}}'))
    reader.feed(event('{"content": "I begin"}')[:-20])
    assert reader.opaque_so_far() == '{"reasoning_content":"hm, so"}'


def test_blocks_of_one_index_are_told_apart_by_their_types_and_ids() -> None:
    entries = [
        '{"type":"reasoning.summary","summary":"a","index":0}',
        '{"type":"reasoning.summary","summary":"b","index":0}',
        '{"type":"reasoning.encrypted","data":"x","index":0}',
        '{"type":"reasoning.encrypted","data":"y","index":0}',
        '{"type":"reasoning.summary","summary":"c","id":"1","index":0}',
        '{"type":"reasoning.summary","summary":"d","id":"2","index":0}',
        '{"type":"reasoning.text","text":"e"}',
        '{"type":"reasoning.text","text":"f"}',
    ]
    found = json.loads(
        streamed(
            *(event(f'{{"reasoning_details":[{each}]}}') for each in entries), event('{"content":"!"}'), ending()
        ).opaque
    )["reasoning_details"]
    told = [each.get("summary") or each.get("data") or each.get("text") for each in found]
    assert told == ["ab", "x", "y", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    "field",
    [
        '"reasoning_content": "{}"',
        '"reasoning_details": [{{"type": "x", "data": "{}"}}]',
        '"extra_content": {{"s": "{}"}}',
    ],
)
def test_more_than_may_be_kept_fails_the_answer_and_is_not_asked_for_again(field: str) -> None:
    before = exceeded["answer_opaque"]
    fits, piece = "x" * (limit_of("answer_opaque") - 100), "x" * 1000
    assert len(whole(f'{{"content": "yes", {field.format(fits)}}}').opaque) > limit_of("answer_opaque") - 100
    with pytest.raises(ResponseTooLarge, match="sent back unchanged"):
        whole(f'{{"content": "yes", {field.format(fits + piece)}}}')
    with pytest.raises(ResponseTooLarge, match="sent back unchanged") as caught:
        streamed(*[event(f"{{{field.format(piece)}}}")] * 300)
    failure = classify(caught.value, source="model")
    assert (failure.code, failure.retryable) == ("response_too_large", False)
    assert exceeded["answer_opaque"] == before + 2


def test_secrets_are_not_kept_and_what_may_be_signed_is_left_out_rather_than_changed() -> None:
    register_secrets(["sk-very-secret-key-1234"])
    reply = whole(
        '{"content": "yes", "reasoning": "the key is sk-very-secret-key-1234, hm", '
        f'"reasoning_details": [{{"text": "sk-very-secret-key-1234"}}], "extra_content": {SIGNED}}}'
    )
    assert reply.opaque == f'{{"reasoning":"the key is {REDACTED}, hm","extra_content":{SIGNED}}}'


@pytest.mark.parametrize("value", ['"text"', "[]", "[1, null, {}]", "7.50", "true", "{}"])
def test_a_field_of_another_kind_is_not_taken_for_what_it_is_not(value: str) -> None:
    """Whatever a provider puts there: the answer is one, or is said to be malformed."""
    for name in ("reasoning", "reasoning_content", "extra_content"):
        reply = whole(f'{{"content": "yes", "{name}": {value}}}')
        found: dict[str, Any] = json.loads(reply.opaque or "{}")
        assert found in ({}, {name: json.loads(value)})


def test_calls_go_by_the_ids_that_the_log_has() -> None:
    calls = [f'{{"id": "same", "function": {{"name": "f"}}, "extra_content": {{"n": {i}}}}}' for i in range(2)]
    reply = whole(f'{{"tool_calls": [{", ".join(calls)}]}}')
    ids = [call.id for call in reply.tool_calls]
    assert json.loads(reply.opaque)["tool_calls"] == {
        ids[0]: {"extra_content": {"n": 0}},
        ids[1]: {"extra_content": {"n": 1}},
    }
    assert len(set(ids)) == 2
    edited = tuple(ToolCall(id=call.id, name="g") for call in reply.tool_calls)
    (sent,) = CHAT_COMPLETIONS.turn(Message(role="assistant", tool_calls=edited), [], reply.opaque)
    assert [call["extra_content"]["n"] for call in json.loads(sent)["tool_calls"]] == [0, 1]
