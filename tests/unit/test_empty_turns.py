"""An empty end of a turn: behind results of tools it may mean that the work is done."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from palaver.errors import EmptyCompletion, EmptyTurn
from palaver.schemas.models import AgentSpec, Usage
from palaver.steps.stuck import Nudge
from palaver.steps.verdicts import Finish
from palaver.vocabulary.lifecycle import StopReason
from tests.unit.test_condensing import asks, entries, result, says, user
from workers.protocols import PROTOCOLS, AnswerReader, ModelProtocol, ModelReply
from workers.steps.asking import ask_model
from workers.steps.conversations import CachedConversation
from workers.steps.prompt import Prompt
from workers.steps.step_functions import _without_calls

BEHIND = entries(user("add"), asks("a"), result("a", "3"))
ENDS: dict[str, dict[str, Any]] = {
    "chat_completions": {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]},
    "anthropic": {"type": "message", "content": [], "stop_reason": "end_turn", "usage": {"input_tokens": 3}},
    "responses": {"status": "completed", "output": [], "usage": {"input_tokens": 3}},
}


def read(protocol: str, document: dict[str, Any]) -> ModelReply:
    reader: AnswerReader = PROTOCOLS[protocol].reader(max_calls=5)  # type: ignore[index]
    reader.read(json.dumps(document).encode())
    return reader.reply()


class Model:
    """A stand-in for one attempt, whose model gives these answers; an empty one raises as a reader does."""

    def __init__(self, log: list[Any], *answers: str, protocol: ModelProtocol = PROTOCOLS["anthropic"]) -> None:
        conversation = CachedConversation(protocol)
        conversation.extend(log, log[-1].position)
        lease: Any = SimpleNamespace(agent=AgentSpec(model="fake/x"), run_id="", step="3", attempt=1)
        self.prompt = Prompt(lease, conversation)
        stream = SimpleNamespace(shown=False, show=None)
        self.attempt: Any = SimpleNamespace(lease=lease, prompt=self.prompt, stream=stream, calls=self)
        self.asked: list[str] = []
        self._answers = list(answers)

    async def ask(self, agent: AgentSpec, protocol: ModelProtocol, messages: list[bytes], *, show: None) -> ModelReply:
        self.asked.append(messages[-1].decode())
        if not (text := self._answers.pop(0)):
            raise EmptyTurn
        return ModelReply(text, (), "stop", Usage())


@pytest.mark.parametrize("protocol", ENDS)
def test_a_reader_tells_an_empty_end_from_no_answer(protocol: str) -> None:
    with pytest.raises(EmptyTurn):
        read(protocol, ENDS[protocol])
    with pytest.raises(EmptyCompletion) as caught:
        read("chat_completions", {"choices": []})
    assert not isinstance(caught.value, EmptyTurn)


UNSAID: dict[str, list[dict[str, Any]]] = {
    "chat_completions": [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}],
    "anthropic": [{"type": "message_start", "message": {}}, {"type": "message_stop"}],
    "responses": [{"type": "response.completed", "response": {"status": "completed", "output": []}}],
}


@pytest.mark.parametrize("protocol", UNSAID)
def test_an_end_that_does_not_say_why_is_one_as_well(protocol: str) -> None:
    reader: AnswerReader = PROTOCOLS[protocol].reader(max_calls=5)  # type: ignore[index]
    for event in UNSAID[protocol]:
        reader.feed(f"data: {json.dumps(event)}\n\n".encode())
    reader.feed(b"data: [DONE]\n\n")
    with pytest.raises(EmptyTurn):
        reader.reply()


async def test_blanks_are_no_words() -> None:
    model = Model(BEHIND, " \n\n", "It is 3.")
    reply = await ask_model(model.attempt)
    assert isinstance(reply, ModelReply)
    assert (reply.content, len(model.asked)) == ("It is 3.", 2)
    assert model.attempt.stream.lost
    model = Model(entries(user("hi")), "\n")
    assert (await ask_model(model.attempt)).content == "\n"  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", PROTOCOLS.values())
async def test_it_is_asked_once_more_with_a_word(protocol: ModelProtocol) -> None:
    model = Model(BEHIND, "", "It is 3.", protocol=protocol)
    reply = await ask_model(model.attempt)
    assert isinstance(reply, ModelReply)
    assert reply.content == "It is 3."
    assert "Your last answer was empty" not in model.asked[0]
    assert "Your last answer was empty" in model.asked[1]
    (note,) = model.prompt.notes
    assert isinstance(note, Nudge)


async def test_and_completes_with_what_there_is() -> None:
    model = Model(BEHIND, "", "")
    reply = await ask_model(model.attempt)
    assert isinstance(reply, ModelReply)
    assert len(model.asked) == 2
    verdict = _without_calls(model.attempt, reply)
    assert isinstance(verdict, Finish)
    assert (verdict.message, verdict.stop_reason) == (says(""), StopReason.END_TURN)


@pytest.mark.parametrize("log", [entries(user("hi")), [*BEHIND, *entries(says("3"), user("and?"), start=4)]])
async def test_elsewhere_it_is_the_providers_failure(log: list[Any]) -> None:
    model = Model(log, "", "late")
    with pytest.raises(EmptyTurn):
        await ask_model(model.attempt)
    assert (len(model.asked), model.prompt.notes) == (1, ())
