"""Whatever a log went through, no history made from it has a call without a result or a result without a call.

Random logs, judged by the model server's own checker, which refuses what real providers refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.steps.leases import LogMessage
from palaver.steps.verdicts import Condensed
from tests.model_server.judge import read
from workers.protocols import CHAT_COMPLETIONS, CallSettings
from workers.steps.conversations import CachedConversation

PATH = "/v1/chat/completions"

CALL_IDS = st.lists(st.sampled_from(["a", "b", "c", "call_1_1_1"]), min_size=1, max_size=4, unique=True)
TEXTS = st.sampled_from(["", "x", "a longer text " * 20, 'quotes " and \\ \x00 \U0001f916'])
ARGUMENTS = st.sampled_from(["{}", '{"x": 1}', "{oops", ""])


@dataclass
class Log:
    """A log as it grows, in the words of what happens to a conversation."""

    draw: st.DrawFn
    entries: list[LogMessage] = field(default_factory=list)
    position: int = 0
    run: int = 1

    def add(self, message: Message, *, through: int = 0, nudge: bool = False) -> None:
        self.position += self.draw(st.integers(1, 3))  # status changes lie between
        run_id = f"run_{self.run}"
        self.entries.append(LogMessage(self.position, message, run_id, nudge=nudge, through=through))

    def user(self) -> None:
        self.run += 1
        self.add(Message(role="user", content=self.draw(TEXTS)))

    def nudge(self) -> None:
        self.add(Message(role="user", content="Try something else."), nudge=True)

    def answer(self) -> None:
        self.add(Message(role="assistant", content=self.draw(TEXTS)))

    def cut_off(self) -> None:
        self.add(Message(role="assistant", content=self.draw(TEXTS), partial=True))

    def turn(self) -> None:
        """Results in any order, some of them errors, interruptions and denials: to the model all the same."""
        ids = self.draw(CALL_IDS)
        self.ask(ids)
        self.answer_calls(self.draw(st.permutations(ids)))

    def damaged_turn(self) -> None:
        """What the store never writes: results that lack, come twice, or belong to nothing."""
        ids = self.draw(CALL_IDS)
        self.ask(ids)
        self.answer_calls(self.draw(st.lists(st.sampled_from([*ids, "ghost"]), max_size=5)))

    def ask(self, ids: Sequence[str]) -> None:
        calls = tuple(ToolCall(id=each, name="f", arguments=self.draw(ARGUMENTS)) for each in ids)
        self.add(
            Message(role="assistant", content=self.draw(TEXTS), tool_calls=calls, partial=self.draw(st.booleans()))
        )

    def answer_calls(self, ids: Sequence[str]) -> None:
        for each in ids:
            failed = self.draw(st.booleans())
            self.add(Message(role="tool", call_id=each, name="f", content=self.draw(TEXTS), is_error=failed))

    def condense(self) -> None:
        """As the engine does it."""
        conversation = CachedConversation(CHAT_COMPLETIONS)
        conversation.extend(self.entries, self.position)
        part = conversation.older_part()
        if part is not None:
            self.add(Message(role="user", content="so far"), through=part.through)

    def condense_anywhere(self) -> None:
        """As it must not do it."""
        if self.position:
            self.add(Message(role="user", content="so far"), through=self.draw(st.integers(1, self.position)))


@st.composite
def logs(draw: st.DrawFn) -> list[LogMessage]:
    log = Log(draw)
    happenings = [
        log.user, log.nudge, log.answer, log.cut_off, log.turn, log.damaged_turn, log.condense, log.condense_anywhere,
    ]  # fmt: skip
    log.user()
    for happening in draw(st.lists(st.sampled_from(happenings), max_size=15)):
        happening()
    return log.entries


AGENT = AgentSpec(model="fake/echo", instructions="Be brief.")


def request(agent: AgentSpec, messages: Sequence[bytes], *, breakpoints: bool = False) -> bytes:
    return CHAT_COMPLETIONS.body(agent, messages, [], CallSettings(cache=breakpoints))


@given(logs(), st.booleans())
def test_no_history_is_ever_refused(log: list[LogMessage], cached: bool) -> None:
    for end in range(1, len(log) + 1):
        conversation = CachedConversation(CHAT_COMPLETIONS)
        conversation.extend(log[:end], log[end - 1].position)
        read(PATH, request(AGENT, conversation.messages(), breakpoints=cached))
        part = conversation.older_part()
        if part is not None:
            ahead = conversation.having(Condensed("so far", part.through))
            read(PATH, request(AGENT, ahead.messages(), breakpoints=cached))


@pytest.mark.slow
@given(logs(), st.data())
def test_a_worker_that_knows_a_part_sees_the_same(log: list[LogMessage], data: st.DataObject) -> None:
    whole, pieces = CachedConversation(CHAT_COMPLETIONS), CachedConversation(CHAT_COMPLETIONS)
    whole.extend(log, log[-1].position)
    for end in sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4))):
        pieces.extend(log[:end], log[end - 1].position if end else 0)
    pieces.extend(log, log[-1].position)
    assert pieces.messages() == whole.messages()
    run_id = log[-1].run_id
    assert (pieces.turns(run_id), pieces.nudged) == (whole.turns(run_id), whole.nudged)
    assert pieces.size == whole.size


@given(logs())
def test_what_the_user_said_last_is_always_there(log: list[LogMessage]) -> None:
    conversation = CachedConversation(CHAT_COMPLETIONS)
    conversation.extend(log, log[-1].position)
    said = [each for each in log if each.message.role == "user" and not each.nudge and not each.through]
    history = read(PATH, request(AGENT, conversation.messages())).history
    assert history.turn >= 1
    newest = CachedConversation(CHAT_COMPLETIONS)
    newest.extend(said[-1:], said[-1].position)
    assert newest.messages()[0] in conversation.messages()
