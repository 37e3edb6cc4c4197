"""Prompt-cache breakpoints: where they are, and that a provider takes them whatever the history is."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.schemas.models import AgentSpec
from tests.model_server.judge import read
from workers.protocols import CHAT_COMPLETIONS, CallSettings
from workers.protocols.chat_completions.breakpoints import marked

PATH = "/v1/chat/completions"

AGENT = AgentSpec(model="fake/echo", instructions="Be brief.")


def message(role: str, content: str | None = "x", **more: Any) -> bytes:
    return orjson.dumps({"role": role, "content": content, **more})


def asks(*ids: str) -> bytes:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return message("assistant", None, tool_calls=calls)


def result(call_id: str, text: str = "ok") -> bytes:
    return message("tool", text, tool_call_id=call_id)


def places(messages: list[bytes]) -> list[int]:
    return [i for i, text in enumerate(marked(messages)) if b"cache_control" in text]


def test_each_of_the_newest_calls_left_one() -> None:
    history = [
        message("user"),
        asks("a"),
        result("a"),
        asks("b", "c"),
        result("b"),
        result("c"),
        asks("d"),
        result("d"),
    ]
    assert places(history[:1]) == [0]
    assert places(history[:3]) == [0, 2]
    assert places(history[:6]) == [0, 2, 5]
    assert places(history) == [2, 5, 7]


def test_the_last_calls_place_is_marked_in_the_next_one_whatever_comes_between() -> None:
    before = [message("user"), asks("a"), result("a", "Error: no")]
    assert max(places(before)) in places(
        [*before, message("assistant"), message("user", "and"), message("user", "now")]
    )


def test_a_message_without_text_has_none() -> None:
    assert places([message("user"), asks("a", "b"), result("a"), result("b", "")]) == [0, 2]
    assert places([message("user", "")]) == []


def test_they_are_on_blocks_and_nowhere_else() -> None:
    body = json.loads(CHAT_COMPLETIONS.body(AGENT, [message("user", "hello")], [], CallSettings(cache=True)))
    block = {"type": "text", "cache_control": {"type": "ephemeral"}}
    assert body["messages"] == [
        {"role": "system", "content": [{**block, "text": "Be brief."}]},
        {"role": "user", "content": [{**block, "text": "hello"}]},
    ]


def test_without_the_option_nothing_changes() -> None:
    body = json.loads(CHAT_COMPLETIONS.body(AGENT, [message("user", "hello")], [], CallSettings()))
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]


TURNS = st.lists(
    st.one_of(
        st.text(max_size=3).map(lambda text: [message("user", text)]),
        st.text(min_size=1, max_size=3).map(lambda text: [message("assistant", text)]),
        st.lists(st.text(max_size=3), min_size=1, max_size=4).map(
            lambda texts: [asks(*map(str, range(len(texts)))), *(result(str(i), text) for i, text in enumerate(texts))]
        ),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@given(TURNS, st.booleans())
def test_a_provider_takes_them(turns: list[list[bytes]], instructions: bool) -> None:
    messages = [text for turn in turns for text in turn]
    agent = AGENT if instructions else AgentSpec(model="fake/echo")
    before = messages.copy()
    with_them = read(PATH, CHAT_COMPLETIONS.body(agent, messages, [], CallSettings(cache=True)))
    without = read(PATH, CHAT_COMPLETIONS.body(agent, messages, [], CallSettings()))
    assert messages == before
    assert with_them.digest == without.digest
    asked_with = any(json.loads(text)["content"] and json.loads(text)["role"] != "assistant" for text in messages)
    assert bool(with_them.history.breakpoints) == (asked_with or instructions)
    assert len(with_them.history.breakpoints) == len(set(with_them.history.breakpoints))
