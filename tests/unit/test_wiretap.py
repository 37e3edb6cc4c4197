"""The comparison of what providers are sent back notices each byte: tests of kills rely on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import httpx
import orjson
import pytest

from palaver.schemas.models import AgentSpec, Message
from palaver.schemas.opaque import Opaque
from palaver.steps.leases import LogMessage
from tests.chaos.wiretap import Wiretap
from tests.model_server import ModelServer
from tests.waiting import PATIENCE
from workers.protocols import CHAT_COMPLETIONS, MESSAGES, RESPONSES, CallSettings, ModelProtocol, Offer
from workers.steps.conversations import CachedConversation

OFFERS = [Offer("add", "Add.", {"type": "object", "properties": {"x": {"type": "number"}}})]
SETTINGS = CallSettings(max_output_tokens=100, cache=True)
QUESTION = '[[args {"x": 1.50, "y": "ö", "a": 1e2}]]'


@dataclass(frozen=True)
class Talk:
    """A turn of three steps, two of which call two tools at once: what was asked and what came."""

    path: str
    asked: Sequence[bytes]
    answers: Sequence[bytes]


def talk(server: ModelServer, protocol: ModelProtocol, model: str) -> Talk:
    """As a worker would do it, with a server that refuses whatever is lost."""
    agent = AgentSpec(model=f"it/parallel-2-2+args-split-2+{model}")
    conversation, asked, answers = CachedConversation(protocol, agent.model), [], []
    entries = [LogMessage(1, Message(role="user", content=QUESTION), "run_1")]
    for _ in range(3):
        conversation.extend(entries, len(entries))
        asked.append(protocol.body(agent, conversation.messages(), OFFERS, SETTINGS))
        url = f"{server.base_url}{protocol.path}"
        answer = httpx.post(
            url, content=asked[-1], headers=dict(protocol.headers(None)), trust_env=False, timeout=PATIENCE
        )
        assert answer.status_code == 200, answer.text
        answers.append(answer.content)
        reader = protocol.reader(max_calls=2)
        reader.feed(answers[-1])
        reply = reader.reply()
        said = Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)
        told = [Message(role="tool", call_id=call.id, content="4", name=call.name) for call in reply.tool_calls]
        opaque = Opaque(conversation.origin, reply.opaque)
        entries.append(LogMessage(len(entries) + 1, said, "run_1", opaque=opaque if reply.opaque else None))
        entries += [LogMessage(len(entries) + i, result, "run_1") for i, result in enumerate(told, 1)]
    return Talk(f"/v1{protocol.path}", asked, answers)


@pytest.fixture(scope="module", params=["deepseek", "gemini", "openrouter", "messages", "responses"])
def spoken(request: pytest.FixtureRequest) -> Iterator[Talk]:
    own: dict[str, ModelProtocol] = {"messages": MESSAGES, "responses": RESPONSES}
    protocol = own.get(request.param, CHAT_COMPLETIONS)
    with ModelServer.running() as server:
        yield talk(server, protocol, "reasoning-3" if request.param in own else request.param)


def compared(spoken: Talk, asked: Sequence[bytes], *, again: bytes | None = None) -> dict[str, int]:
    """What a wiretap says that hears this, and the last request once more."""
    tap = Wiretap("")
    for step, (body, answer) in enumerate(zip(asked, spoken.answers, strict=True), 1):
        tap.begin(spoken.path, f"run_1:{step}:1", body).answer.extend(answer)
    tap.begin(spoken.path, "run_1:3:2", again or asked[-1])
    return {name.removeprefix(f"{spoken.path} "): count for name, count in tap.check().items()}


def test_what_comes_back_as_it_came_is_right(spoken: Talk) -> None:
    found = compared(spoken, spoken.asked)
    assert (found["asked again"], found["asked on"]) == (1, 2)
    # Two calls each, and thoughts or signatures: of one step in the second request, of both in the third and fourth.
    assert found["sent back"] >= 3 + 2 * 6


CHANGES: list[Callable[[bytes], bytes]] = [
    lambda body: body.replace(b"1.50", b"1.5"),
    lambda body: body.replace(b"1e2", b"100.0"),
    lambda body: body.replace("ö".encode(), b"\\u00f6"),
    lambda body: orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2),
    lambda body: re.sub(rb'"(reasoning_content|thought_signature|signature|encrypted_content)":"', b"\\0 ", body),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_byte_that_is_another_one_is_noticed(spoken: Talk, change: Callable[[bytes], bytes]) -> None:
    changed = [change(body) for body in spoken.asked]
    assert changed[-1] != spoken.asked[-1]
    with pytest.raises(AssertionError, match="run_1"):
        compared(spoken, changed)
    with pytest.raises(AssertionError, match="run_1"):
        compared(spoken, spoken.asked, again=changed[-1])


def test_what_is_asked_in_another_order_is_noticed(spoken: Talk) -> None:
    first, second, third = spoken.asked
    with pytest.raises(AssertionError, match="run_1"):
        compared(spoken, [first, second.replace(b'"4"', b'"5"', 1), third])
