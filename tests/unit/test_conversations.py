"""What a model sees is derived from the log: whole turns, in call order, whatever order the results came in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.steps.leases import Lease, LogMessage, LogTail
from palaver.vocabulary.step_kinds import MODEL
from workers.protocols import CHAT_COMPLETIONS
from workers.protocols.chat_completions import ChatCompletions
from workers.steps.conversation_cache import ConversationCache
from workers.steps.conversations import CachedConversation


def entries(*messages: Message, start: int = 1) -> list[LogMessage]:
    return [LogMessage(start + i, message) for i, message in enumerate(messages)]


def seen(conversation: CachedConversation) -> list[dict[str, Any]]:
    return [json.loads(text) for text in conversation.messages()]


def user(text: str) -> Message:
    return Message(role="user", content=text)


def asks(*call_ids: str, arguments: str = "{}") -> Message:
    calls = tuple(ToolCall(id=call_id, name="f", arguments=arguments) for call_id in call_ids)
    return Message(role="assistant", tool_calls=calls)


def result(call_id: str, text: str = "ok", *, is_error: bool = False) -> Message:
    return Message(role="tool", call_id=call_id, name="f", content=text, is_error=is_error)


@given(st.permutations(["a", "b", "c"]))
def test_results_follow_in_call_order(order: list[str]) -> None:
    conversation = CachedConversation(CHAT_COMPLETIONS)
    conversation.extend(entries(user("go"), asks("a", "b", "c"), *(result(each) for each in order)), 5)
    assert [message.get("tool_call_id") for message in seen(conversation)[2:]] == ["a", "b", "c"]


def test_an_error_says_so() -> None:
    conversation = CachedConversation(CHAT_COMPLETIONS)
    conversation.extend(entries(user("go"), asks("a"), result("a", "too late", is_error=True)), 3)
    assert seen(conversation)[-1]["content"] == "Error: too late"


def test_arguments_that_are_no_json_do_not_go_back_to_the_provider() -> None:
    conversation = CachedConversation(CHAT_COMPLETIONS)
    conversation.extend(entries(user("go"), asks("a", arguments="{oops"), result("a")), 3)
    assert seen(conversation)[1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_an_answer_that_was_cut_off_before_its_first_word_is_left_out() -> None:
    conversation = CachedConversation(CHAT_COMPLETIONS)
    conversation.extend(entries(user("go"), Message(role="assistant", partial=True), user("again")), 3)
    assert [message["role"] for message in seen(conversation)] == ["user", "user"]


def test_a_result_without_a_call_is_left_out_and_a_call_without_a_result_gets_one() -> None:
    conversation = CachedConversation(CHAT_COMPLETIONS)
    conversation.extend(entries(user("go"), result("ghost"), asks("a", "b"), result("b"), user("and?")), 5)
    assert [message["role"] for message in seen(conversation)] == ["user", "assistant", "tool", "tool", "user"]
    assert seen(conversation)[2]["tool_call_id"] == "a"


@given(st.integers(min_value=0, max_value=6), st.integers(min_value=0, max_value=6))
def test_reading_in_pieces_or_twice_changes_nothing(first: int, second: int) -> None:
    log = entries(user("go"), asks("a", "b"), result("b"), result("a"), user("more"), asks("c"), result("c"))
    whole, pieces = CachedConversation(CHAT_COMPLETIONS), CachedConversation(CHAT_COMPLETIONS)
    whole.extend(log, 7)
    pieces.extend(log[:first], first)
    pieces.extend(log[min(first, second) :], 7)
    assert pieces.messages() == whole.messages()


@pytest.mark.slow
def test_old_conversations_make_room() -> None:
    kept = ConversationCache()
    for i in range(3):
        conversation = CachedConversation(CHAT_COMPLETIONS)
        conversation.extend(entries(user("x" * (30 << 20))), 1)
        kept.keep(f"conv_{i}", conversation)
    assert [kept.get(f"conv_{i}") is None for i in range(3)] == [True, False, False]


def test_what_a_worker_knows_is_gone_on_with_unless_the_lease_brings_all() -> None:
    kept = ConversationCache()
    known = kept.load(None, lease(*entries(user("one"))), CHAT_COMPLETIONS)
    assert kept.load(known, lease(*entries(user("two"), start=2)), CHAT_COMPLETIONS) is known
    other = kept.load(known, lease(*entries(user("one"), user("two")), rebuilt=True), CHAT_COMPLETIONS)
    assert other is not known
    assert [message["content"] for message in seen(other)] == ["one", "two"]
    assert kept.get("conv") is other


def lease(*brought: LogMessage, rebuilt: bool = False) -> Lease:
    """A model step's, with what its claim brought."""
    return Lease(
        run_id="run",
        conversation_id="conv",
        kind=MODEL,
        step="1",
        fence=1,
        attempt=1,
        try_number=1,
        elapsed=0.0,
        time_left=60.0,
        agent=AgentSpec(model="a/b"),
        call=None,
        log=LogTail(brought, brought[-1].position, rebuilt=rebuilt),
    )


def made_by(model: str, message: Message, position: int) -> LogMessage:
    opaque = Opaque(f"chat_completions/{model}", '{"reasoning_content":"hm"}')
    return LogMessage(position, message, opaque=opaque)


def test_what_a_model_wants_back_goes_to_that_model_alone() -> None:
    answer = Message(role="assistant", content="fine")
    log = [*entries(user("go")), made_by("x/one", asks("a"), 2), *entries(result("a"), start=3)]
    log += [made_by("x/two", answer, 4)]
    for model, expected in (("x/one", [1]), ("x/two", [3]), ("y/one", [])):
        conversation = CachedConversation(CHAT_COMPLETIONS, model)
        conversation.extend(log, 4)
        assert [i for i, message in enumerate(seen(conversation)) if "reasoning_content" in message] == expected


def test_a_conversation_turns_to_another_model_as_long_as_no_model_wants_something_back() -> None:
    conversation = CachedConversation(CHAT_COMPLETIONS, "x/one")
    conversation.extend(entries(user("go")), 1)
    assert conversation.turn_to(CHAT_COMPLETIONS, "x/two")
    conversation.extend([made_by("x/two", Message(role="assistant", content="fine"), 2)], 2)
    assert "reasoning_content" in seen(conversation)[1]
    assert conversation.turn_to(CHAT_COMPLETIONS, "x/two")
    assert not conversation.turn_to(CHAT_COMPLETIONS, "x/one")
    assert not conversation.turn_to(ChatCompletions(), "x/two"), "another protocol has other messages"
