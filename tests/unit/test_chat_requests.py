"""Chat completions as OpenAI's own SDK knows them: its types take our requests, its client reads our model server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given

from palaver.schemas.content import FilePart, ImagePart, TextPart
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.steps.leases import LogMessage
from tests.model_server import ModelServer
from tests.unit.sdk_types import require_taken, sdk_type
from tests.unit.test_protocol_rules import FULL, OFFERS, agent
from tests.unit.test_whole_turns import logs
from workers.protocols import CHAT_COMPLETIONS, CallSettings
from workers.steps.conversations import CachedConversation

if TYPE_CHECKING:
    import openai

PARAMS = "openai.types.chat.completion_create_params.CompletionCreateParams"
IMAGE = ImagePart.of(b"\x89PNG", "image/png")
ADD: Any = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


def taken(body: bytes) -> dict[str, Any]:
    """A request that the SDK would take."""
    request: dict[str, Any] = json.loads(body)
    require_taken(PARAMS, request)
    return request


def test_what_is_wrong_anywhere_is_noticed() -> None:
    for message in ({"role": "user", "content": 5}, {"role": "tool", "content": [{"type": "image_url"}]}):
        with pytest.raises(ValueError, match="validation error"):
            taken(json.dumps({"model": "m", "messages": [message]}).encode())


@pytest.mark.parametrize("options", [{}, FULL, {"response_format": {"type": "json_object"}, "tool_choice": "required"}])
@pytest.mark.parametrize("settings", [CallSettings(), CallSettings(cache=True, max_completion_tokens=True)])
def test_every_option_is_one_of_its_own(options: dict[str, Any], settings: CallSettings) -> None:
    for stream in (True, False):
        spec = agent(**options, stream=stream, instructions="Be brief.")
        body = taken(CHAT_COMPLETIONS.body(spec, [b'{"role":"user","content":"hi"}'], OFFERS, settings))
        known = {key for kind in get_args(sdk_type(PARAMS)) for key in kind.__annotations__}
        assert body.keys() <= known


def test_parts_of_every_kind_are_its_own() -> None:
    parts = (TextPart(type="text", text="look"), IMAGE, FilePart.of(b"%PDF-", "application/pdf", name="a.pdf"))
    asked = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="look"), ToolCall(id="c2", name="add")))
    results = [Message(role="tool", call_id="c1", name="look", content=parts)]
    results += [Message(role="tool", call_id="c2", name="add", content="no", is_error=True)]
    messages = [
        CHAT_COMPLETIONS.message(Message(role="user", content=parts)),
        *CHAT_COMPLETIONS.turn(asked, results),
        CHAT_COMPLETIONS.message(Message(role="assistant", content="done")),
    ]
    for cache in (False, True):
        taken(CHAT_COMPLETIONS.body(agent(), messages, OFFERS, CallSettings(cache=cache)))


@given(logs())
def test_any_conversation_is_its_own(log: Sequence[LogMessage]) -> None:
    conversation = CachedConversation(CHAT_COMPLETIONS)
    conversation.extend(log, log[-1].position if log else 0)
    taken(CHAT_COMPLETIONS.body(AgentSpec(model="fake/echo"), conversation.messages(), (), CallSettings(cache=True)))


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    import openai

    with ModelServer.running() as server:
        yield openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0)


def test_its_client_reads_the_model_servers_streams(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="parallel-2+args-split-3",
        messages=[{"role": "user", "content": "hi"}],
        tools=[ADD],
        stream=True,
        stream_options={"include_usage": True},
    )
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    finish = usage = None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                names.setdefault(call.index, call.function.name or "")
                arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert (names, finish) == ({0: "add", 1: "add"}, "tool_calls")
    assert [json.loads(text) for text in arguments.values()] == [{}, {}]
    assert usage is not None
    assert usage.completion_tokens > 0


def test_its_client_reads_whole_answers_and_json(client: openai.OpenAI) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answer = client.chat.completions.create(
        model="json",
        messages=[{"role": "user", "content": "hi"}],
        response_format={"type": "json_schema", "json_schema": {"name": "it", "schema": schema}},
    )
    assert json.loads(answer.choices[0].message.content or "") == {"n": 1}


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("echo+429", "RateLimitError"),
        ("echo+503", "InternalServerError"),
        ("echo+context", "BadRequestError"),
        ("echo+401", "AuthenticationError"),
        ("say-9+errorchunk", "APIError"),
    ],
)
def test_its_client_knows_the_model_servers_errors(client: openai.OpenAI, model: str, error: str) -> None:
    import openai

    with pytest.raises(getattr(openai, error)):
        for _ in client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}], stream=True):
            pass
