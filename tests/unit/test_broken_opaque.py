"""What a provider wants back is from a log, which may be broken: what cannot be read is left out, and nothing else."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.config.providers import Provider
from palaver.schemas.models import Message, ToolCall
from workers.protocols import CHAT_COMPLETIONS, PROTOCOLS, RESPONSES, ModelProtocol, protocol_of

IDS: Final = ("call_aaaaaaaaaaaaaaaa1", "call_aaaaaaaaaaaaaaaa2")
ASKS: Final = Message(role="assistant", content="So.", tool_calls=tuple(ToolCall(id=each, name="add") for each in IDS))
RESULTS: Final = [Message(role="tool", call_id=each, name="add", content="2") for each in IDS]
WHOLE: Final = {
    "chat_completions": '{"reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"t"}],'
    f'"tool_calls":{{"{IDS[0]}":{{"id":"f:0","extra_content":{{"g":1}}}}}}}}',
    "anthropic": f'{{"blocks":[{{"type":"thinking","thinking":"t","signature":"s"}},3,"{IDS[0]}","{IDS[1]}"]}}',
    "responses": f'{{"items":[{{"type":"reasoning","id":"r"}},[3,"final"],"{IDS[0]}","{IDS[1]}"]}}',
}
LEFT_OUT: Final = "what a provider wants back unchanged cannot be read and is left out"


def sent(protocol: ModelProtocol, opaque: str) -> list[Any]:
    """What goes out is JSON; all of it."""
    first, *rest = protocol.turn(ASKS, RESULTS, opaque, place=7)
    assert orjson.loads(b"[%b]" % protocol.message(Message(role="assistant", content="So."), opaque))
    protocol.parsed(protocol.plain(first))
    return orjson.loads(b"[%b]" % b",".join([first, *rest]))  # type: ignore[no-any-return]


def calls_and_results(said: Any) -> tuple[list[str], list[str]]:
    """Of any protocol: the ids of calls, and those of results."""
    calls, results = [], []

    def look(value: Any) -> None:
        if isinstance(value, list):
            for each in value:
                look(each)
        elif isinstance(value, dict):
            kind, role = value.get("type"), value.get("role")
            if kind in ("function", "tool_use", "function_call"):
                calls.append(value.get("call_id") or value["id"])
            elif kind in ("tool_result", "function_call_output") or role == "tool":
                results.append(value.get("tool_use_id") or value.get("call_id") or value["tool_call_id"])
            look([value.get("content"), value.get("tool_calls")] if role in ("assistant", "user") else None)

    look(said)
    return calls, results


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, str]:
    """A protocol, and what it wrote with a piece of it gone, doubled or replaced."""
    name = draw(st.sampled_from(sorted(WHOLE)))
    text = WHOLE[name]
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 40)))
    piece = draw(
        st.sampled_from(["", "null", "1.5", "-2", "NaN", "{}", "[1]", '"', "}", text[start:end] * 2, "[" * 3000])
    )
    return name, text[:start] + piece + text[end:]


@given(broken())
def test_whatever_is_broken_the_turn_is_whole(given: tuple[str, str]) -> None:
    name, text = given
    calls, results = calls_and_results(sent(PROTOCOLS[name], text))  # type: ignore[index]
    assert len(calls) == len(set(calls)) == len(IDS)
    assert sorted(calls) == sorted(results)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda each: str(each.name))
def test_what_is_no_json_is_left_out_and_said(protocol: ModelProtocol, caplog: pytest.LogCaptureFixture) -> None:
    assert sent(protocol, '{"x":}') == sent(protocol, "")
    assert LEFT_OUT in caplog.text


def test_what_can_be_read_beside_it_is_kept() -> None:
    broken = '{"type":"reasoning","x":1e999},1.5'
    said = sent(RESPONSES, f'{{"items":[{broken},{{"type":"reasoning","id":"r"}},"{IDS[0]}"]}}')
    assert said[0] == {"type": "reasoning", "id": "r"}
    calls = f'{{"{IDS[0]}":[],"{IDS[1]}":{{"id":"f:1"}}}}'
    (asks, *_) = sent(CHAT_COMPLETIONS, f'{{"reasoning_content":"hm","tool_calls":{calls}}}')
    assert asks["reasoning_content"] == "hm"
    assert [call["id"] for call in asks["tool_calls"]] == [IDS[0], "f:1"]


def test_an_id_that_was_given_is_made_short_the_same_each_time() -> None:
    short = protocol_of(Provider(base_url="https://api.example.com/v1", short_call_ids=True))
    assert sent(short, WHOLE["chat_completions"]) == sent(short, WHOLE["chat_completions"])
