"""What a summary stands for, and how it is made: projections of the log, and a model that is asked in pieces."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from palaver.errors import EmptyCompletion, ProviderHTTPError
from palaver.schemas.models import AgentSpec, Message, ToolCall, Usage
from palaver.steps.leases import LogMessage
from palaver.steps.verdicts import Condensed, RetryAfter
from palaver.store.scripting.contracts.providers import Wait
from workers.protocols import CHAT_COMPLETIONS, WITHHELD, ModelProtocol, ModelReply
from workers.steps.asking import ask_model
from workers.steps.condensing import condense
from workers.steps.conversations import CachedConversation
from workers.steps.prompt import Prompt

PROVIDER_SAYS_TOO_LONG = b'{"error": {"code": "context_length_exceeded", "message": "too long"}}'


def user(text: str) -> Message:
    return Message(role="user", content=text)


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


def asks(call_id: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id=call_id, name="f"),))


def result(call_id: str, text: str = "ok") -> Message:
    return Message(role="tool", call_id=call_id, name="f", content=text)


def entries(*messages: Message, start: int = 1) -> list[LogMessage]:
    return [LogMessage(start + i, message) for i, message in enumerate(messages)]


def summary(position: int, text: str, through: int) -> LogMessage:
    return LogMessage(position, user(text), through=through)


def of(*log: LogMessage) -> CachedConversation:
    conversation = CachedConversation(CHAT_COMPLETIONS)
    conversation.extend(log, log[-1].position)
    return conversation


def told(conversation: CachedConversation) -> list[str]:
    """Each message as its role and the end of what it says."""
    messages = [json.loads(text) for text in conversation.messages()]
    return [f"{message['role']}: {(message['content'] or 'calls').splitlines()[-1]}" for message in messages]


LOG = entries(user("one"), asks("a"), result("a"), says("fine"), user("two"), asks("b"), result("b"))


def test_a_summary_stands_for_what_is_older_and_the_users_newest_message_stays() -> None:
    assert told(of(*LOG, summary(8, "so far", 4))) == [
        "user: so far", "user: two", "assistant: calls", "tool: ok",
    ]  # fmt: skip
    assert told(of(*LOG, summary(8, "so far", 7))) == ["user: so far", "user: two"]


@pytest.mark.parametrize("through", range(1, 8))
def test_no_summary_cuts_a_turn_in_two(through: int) -> None:
    roles = [message.partition(":")[0] for message in told(of(*LOG, summary(8, "so far", through)))]
    assert roles.count("tool") == sum(1 for end in (3, 7) if end > through)
    assert all(roles[i - 1] == "assistant" for i, role in enumerate(roles) if role == "tool")


def test_the_newest_summary_takes_in_the_one_before() -> None:
    more = [
        summary(8, "first", 4),
        *entries(says("good"), user("three"), says("yes"), start=9),
        summary(12, "second", 9),
    ]
    assert told(of(*LOG, *more)) == ["user: second", "user: three", "assistant: yes"]


def test_having_shows_what_the_log_will_say() -> None:
    conversation = of(*LOG)
    before = conversation.messages().copy()
    ahead = conversation.having(Condensed("so far", 4))
    assert conversation.messages() == before
    assert ahead.messages() == of(*LOG, summary(8, "so far", 4)).messages()
    conversation.extend([summary(8, "so far", 4)], 8)
    assert ahead.messages() == conversation.messages()
    assert ahead.size == conversation.size


def test_the_newest_turns_are_kept_up_to_a_quarter() -> None:
    log = entries(*(message for i in range(20) for message in (user(f"question {i}"), says("x" * 100))))
    part = of(*log).older_part()
    assert part is not None
    assert 0.70 < len(part.messages) / 40 < 0.85
    assert part.through == len(part.messages)
    assert part.weight == sum(map(len, part.messages))


def test_a_newest_turn_that_is_too_long_itself_is_condensed_and_the_question_stays() -> None:
    log = entries(user("one"), asks("a"), result("a"), asks("b"), result("b", "x" * 10_000))
    part = of(*log).older_part()
    assert part is not None
    assert part.through == 5
    assert told(of(*log, summary(6, "so far", part.through))) == ["user: so far", "user: one"]


@pytest.mark.parametrize(
    "log",
    [
        entries(user("x" * 1000)),
        [*entries(user("one"), says("two")), summary(3, "so far", 2)],
        [*entries(user("x" * 1000), says("two")), summary(3, "so far", 2)],
    ],
    ids=["one message", "condensed a moment ago", "nothing but the question"],
)
def test_there_may_be_nothing_to_condense(log: list[LogMessage]) -> None:
    assert of(*log).older_part() is None


def test_the_tokens_of_the_last_call_are_known_until_it_is_condensed() -> None:
    answer = LogMessage(3, says("two"), prompt_tokens=700)
    assert of(*entries(user("one")), answer).prompt_tokens == 700
    assert of(*entries(user("one")), answer, summary(4, "so far", 3)).prompt_tokens == 0


class Model:
    """A stand-in for one attempt of a step, whose model refuses what is longer than its window (bytes)."""

    def __init__(
        self,
        conversation: CachedConversation,
        window: int,
        answer: str = "done",
        finish_reason: str = "stop",
        **agent: Any,
    ) -> None:
        spec = AgentSpec(model="fake/x", **agent)
        lease: Any = SimpleNamespace(agent=spec, run_id="run_1", step="3", attempt=2)
        self.prompt = Prompt(lease, conversation)
        self.stream = SimpleNamespace(shown=False, show=None)
        self.attempt: Any = SimpleNamespace(lease=lease, prompt=self.prompt, stream=self.stream, calls=self)
        self.questions: list[str] = []
        self.calls = 0
        self._window = window
        self._answer = answer
        self._finish_reason = finish_reason

    @property
    def conversation(self) -> CachedConversation:
        return self.prompt._conversation

    async def ask(
        self, agent: AgentSpec, _: ModelProtocol, messages: list[bytes], *, purpose: str = "", show: None = None
    ) -> ModelReply:
        self.calls += 1
        if sum(map(len, messages)) > self._window:
            raise ProviderHTTPError(400, PROVIDER_SAYS_TOO_LONG)
        if purpose:
            assert not agent.tools
            self.questions.append(json.loads(messages[0])["content"])
        return ModelReply(self._answer, (), self._finish_reason, Usage())

    async def answer(self) -> ModelReply | RetryAfter | Wait:
        return await ask_model(self.attempt)


def long(turns: int, text: str = "x" * 500) -> CachedConversation:
    return of(*entries(*(message for i in range(turns) for message in (user(f"q{i} {text}"), says(f"a{i}")))))


async def test_a_conversation_that_fits_is_left_alone() -> None:
    model = Model(long(10), window=100_000)
    await model.answer()
    assert (model.calls, model.questions) == (1, [])


async def test_a_conversation_that_is_refused_is_condensed_and_asked_with_again() -> None:
    model = Model(long(10), window=5000)
    await model.answer()
    assert len(model.questions) == 1
    assert model.calls == 3
    assert told(model.conversation)[0] == "user: done"
    assert told(model.conversation)[-1] == "assistant: a9"


async def test_an_older_part_that_does_not_fit_is_taken_piece_by_piece() -> None:
    model = Model(long(40), window=8000)
    await model.answer()
    assert len(model.questions) > 1
    pieces = "".join(model.questions)
    assert all(f"q{i} " in pieces for i in range(30)), "a part of the conversation was left out"
    assert all("<summary_so_far>\ndone" in question for question in model.questions[1:])


async def test_one_message_that_does_not_fit_keeps_its_ends() -> None:
    giant = "begin " + "x" * 50_000 + " end"
    model = Model(of(*entries(user("one"), asks("a"), result("a", giant))), window=4000)
    await model.answer()
    (question,) = [each for each in model.questions if "begin" in each]
    assert "end" in question
    assert "left out" in question
    assert told(model.conversation) == ["user: done", "user: one"]


@pytest.mark.parametrize(
    "lengths",
    [(7800, 7800), (7000,) * 20, (200,) * 2000, (400_000, 10, 3_000_000)],
    ids=lambda lengths: f"{len(lengths)} results",
)
async def test_whatever_a_turn_is_made_of_ten_calls_bring_it_down(lengths: tuple[int, ...]) -> None:
    calls = tuple(ToolCall(id=str(i), name="f") for i in range(len(lengths)))
    results = [result(call.id, "x" * length) for call, length in zip(calls, lengths, strict=True)]
    turn = [Message(role="assistant", tool_calls=calls), *results]
    model = Model(of(*entries(user("one"), says("two"), user("three"), *turn)), window=8000)
    await model.answer()
    assert model.calls <= 12
    assert told(model.conversation) == ["user: done", "user: three"]
    assert "User: one" in model.questions[0]
    assert "Tool result: " in model.questions[-1]


async def test_calls_for_one_summary_are_bounded() -> None:
    model = Model(long(10), window=10)
    with pytest.raises(ProviderHTTPError):
        await model.answer()
    assert model.calls <= 12


async def test_a_summary_is_shorter_than_what_it_stands_for() -> None:
    model = Model(long(10), window=5000, answer="talk " * 10_000)
    await model.answer()
    assert sum(map(len, model.conversation.messages())) < 3500


@pytest.mark.parametrize(("answer", "finish_reason"), [(" ", "stop"), ("I must not", WITHHELD)])
async def test_what_is_no_summary_takes_the_place_of_nothing(answer: str, finish_reason: str) -> None:
    model = Model(long(10), window=5000, answer=answer, finish_reason=finish_reason)
    before = model.conversation.messages()
    with pytest.raises(ProviderHTTPError):
        await model.answer()
    assert model.calls == 2
    with pytest.raises(EmptyCompletion):
        await condense(model.attempt, required=True)
    assert model.conversation.messages() == before


async def test_who_asks_for_a_summary_is_told_that_nothing_would_go_away_by_no_call() -> None:
    model = Model(of(*entries(user("x" * 1000), says("two"))), window=5000)
    await condense(model.attempt, required=True)
    assert (model.calls, model.questions) == (0, [])


async def test_an_agent_may_refuse_to_be_condensed() -> None:
    model = Model(long(10), window=5000, condense=False)
    with pytest.raises(ProviderHTTPError):
        await model.answer()
    assert model.calls == 1


async def test_what_watchers_saw_is_left_to_the_next_attempt_to_withdraw() -> None:
    model = Model(long(10), window=5000)
    model.stream.shown = True
    verdict = await model.answer()
    assert isinstance(verdict, RetryAfter)
    assert (verdict.delay, verdict.attempts, verdict.failure.error_class) == (0, 3, "context_window")
    assert len(model.questions) == 1
    assert told(model.conversation)[0] == "user: done"


async def test_an_answer_that_outgrows_what_was_condensed_is_not_condensed_again() -> None:
    conversation = long(10)
    conversation.extend([summary(21, "so far", 4)], 21)
    model = Model(conversation, window=500)
    model.stream.shown = True
    with pytest.raises(ProviderHTTPError):
        await model.answer()
    assert model.questions == []
    conversation.extend([LogMessage(22, says("and"))], 22)
    assert isinstance(await model.answer(), RetryAfter)


@pytest.mark.parametrize(("tokens", "calls"), [(2000, 1), (2001, 2)])
async def test_a_threshold_condenses_before_the_call(tokens: int, calls: int) -> None:
    conversation = long(10)
    conversation.extend([LogMessage(21, says("and"), prompt_tokens=tokens)], 21)
    model = Model(conversation, window=100_000, condense_at=2000)
    await model.answer()
    assert model.calls == calls


@pytest.mark.parametrize(("most", "calls"), [(20, 1), (19, 2)])
async def test_so_many_messages_are_condensed_before_the_call(most: int, calls: int) -> None:
    model = Model(long(10), window=100_000, condense_at_messages=most)
    await model.answer()
    assert model.calls == calls


async def test_half_of_so_many_messages_are_kept_however_short_they_are() -> None:
    log = entries(user("x" * 100_000), *(says(f"a{i}") for i in range(30)))
    model = Model(of(*log), window=1_000_000, condense_at_messages=10)
    await model.answer()
    # The summary and the user's message beside them.
    assert len(model.prompt.messages()) == 7
    assert told(model.conversation)[-1] == "assistant: a29"
    model.calls = 0
    await model.answer()
    assert model.calls == 1


async def test_a_threshold_below_what_cannot_be_condensed_does_not_cost_a_call_each_time() -> None:
    conversation = long(1)
    conversation.extend([LogMessage(3, says("and"), prompt_tokens=50_000)], 3)
    model = Model(conversation, window=100_000, condense_at=2000)
    await model.answer()
    assert model.calls == 1


async def test_a_conversation_many_windows_long_is_condensed_as_often_as_it_takes() -> None:
    model = Model(long(160), window=8000)
    reply = await model.answer()
    assert isinstance(reply, ModelReply)
    assert sum(map(len, model.prompt.messages())) <= 8000
    assert len(model.prompt.notes) > 1


class Unclear(Model):
    """The same, whose model does not say what it refuses."""

    refusal = (400, b"")

    async def ask(self, *args: Any, **more: Any) -> ModelReply:
        try:
            return await super().ask(*args, **more)
        except ProviderHTTPError:
            raise ProviderHTTPError(*self.refusal) from None


async def test_a_refusal_that_may_be_one_for_length_condenses_a_long_conversation_once() -> None:
    model = Unclear(long(60), window=20_000)
    assert isinstance(await model.answer(), ModelReply)
    assert len(model.prompt.notes) == 1
    model = Unclear(long(160), window=3000)
    with pytest.raises(ProviderHTTPError):
        await model.answer()
    assert len(model.prompt.notes) <= 1


@pytest.mark.parametrize(
    ("turns", "refusal"),
    [(10, (400, b"")), (60, (400, b'{"error": {"message": "Unknown parameter: foo"}}')), (60, (404, b""))],
    ids=["short", "about something else", "another status"],
)
async def test_other_refusals_condense_nothing(turns: int, refusal: tuple[int, bytes]) -> None:
    model = Unclear(long(turns), window=100)
    model.refusal = refusal
    with pytest.raises(ProviderHTTPError):
        await model.answer()
    assert (model.calls, model.prompt.notes) == (1, ())
