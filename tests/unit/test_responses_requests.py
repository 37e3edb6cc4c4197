"""Requests in OpenAI's Responses: as its own SDK types them, and as its API wants a conversation to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given

from palaver.schemas.content import FilePart, ImagePart, TextPart
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.steps.leases import LogMessage
from palaver.steps.verdicts import Condensed, ReasoningDropped
from tests.model_server.judge import read
from tests.unit.sdk_types import require_taken, sdk_type
from tests.unit.test_protocol_rules import FULL, OFFERS, SUM
from tests.unit.test_whole_turns import logs
from workers.protocols import CHAT_COMPLETIONS, MESSAGES, PROTOCOLS, RESPONSES, CallSettings, ModelProtocol, Offer
from workers.steps.conversations import CachedConversation

PARAMS = "openai.types.responses.response_create_params.ResponseCreateParams"
HI = [b'{"role":"user","content":"hi"}']
THOUGHT = '{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x", "n": 1.50}'
HERE = Opaque("responses/gpt/x", f'{{"items":[{THOUGHT},"call_0123456789abcdef0123"]}}')
CALL = ToolCall(id="call_0123456789abcdef0123", name="add", arguments='{"x": 1}')
ASKS = Message(role="assistant", tool_calls=(CALL,))
ANSWERS = Message(role="tool", call_id=CALL.id, name="add", content="1")


def request(messages: Sequence[bytes], settings: CallSettings | None = None, **options: Any) -> dict[str, Any]:
    """The body of a request, which the SDK's types and the model server take."""
    agent = AgentSpec.model_validate_json(json.dumps({"model": "gpt/x", **options}))
    text = RESPONSES.body(agent, messages, OFFERS, settings or CallSettings())
    body: dict[str, Any] = json.loads(text)
    require_taken(PARAMS, body)
    known = {
        key
        for kind in get_args(sdk_type(PARAMS))
        for base in kind.__mro__
        for key in getattr(base, "__annotations__", {})
    }
    assert body.keys() <= known
    read("/v1/responses", text)
    return body


@pytest.mark.slow
@given(logs())
def test_no_history_is_ever_refused(log: list[LogMessage]) -> None:
    for end in range(1, len(log) + 1):
        conversation = CachedConversation(RESPONSES)
        conversation.extend(log[:end], log[end - 1].position)
        if conversation.messages():
            request(conversation.messages())
        part = conversation.older_part()
        if part is not None:
            ahead = conversation.having(Condensed("so far", part.through))
            request(ahead.messages())
            assert all(RESPONSES.parsed(text) for text in part.messages)


def test_the_options_have_their_own_names() -> None:
    options = {name: value for name, value in FULL.items() if name not in ("seed", "stop")}
    settings = CallSettings(thinking="summarized")
    body = request(HI, settings, stream=True, instructions="Be brief.", **options)
    assert body == {
        "model": "x", "stream": True, "store": False, "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.", "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 100, "user": "u1",
        "reasoning": {"effort": "low", "summary": "auto"}, "parallel_tool_calls": False,
        "tool_choice": {"type": "function", "name": "add"}, "input": [{"role": "user", "content": "hi"}],
        "text": {"format": {"type": "json_schema", "name": "sum", "schema": SUM, "strict": True}},
        "tools": [{
            "type": "function", "name": "add", "description": "Add.", "parameters": OFFERS[0].parameters,
            "strict": False,
        }],
    }  # fmt: skip
    plain = request(HI, CallSettings(max_output_tokens=50), response_format={"type": "json_object"})
    assert (plain["max_output_tokens"], plain["text"]) == (50, {"format": {"type": "json_object"}})
    agent = AgentSpec(model="gpt/x", tool_choice="required", parallel_tool_calls=True)
    without = json.loads(RESPONSES.body(agent, HI, (), CallSettings()))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & {*without}
    bare = Offer("now", "", {"type": "object"})
    assert "description" not in json.loads(RESPONSES.body(agent, HI, [bare], CallSettings()))["tools"][0]


def test_parts_of_every_kind_are_its_own() -> None:
    image, link = ImagePart.of(b"\x89PNG", "image/png"), ImagePart(type="image", url="https://example.org/x.png")
    file = FilePart(type="file", url="data:application/pdf;base64,JVBERi0=", name="a.pdf")
    elsewhere = FilePart(type="file", url="https://example.org/x.pdf")
    content = (TextPart(type="text", text="look"), image, link, file, elsewhere)
    asked = RESPONSES.message(Message(role="user", content=content))
    shown = Message(role="tool", call_id=CALL.id, content=content, is_error=True)
    items = request([asked, *RESPONSES.turn(ASKS, [shown])])["input"]
    parts = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": image.url, "detail": "auto"},
        {"type": "input_image", "image_url": link.url, "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": file.url},
        {"type": "input_file", "file_url": elsewhere.url},
    ]
    assert items[0]["content"] == parts
    assert items[2]["output"] == [{"type": "input_text", "text": "Error:"}, *parts]
    (told,) = RESPONSES.parsed(asked)
    assert told.content == "look\n[image]\n[image]\n[file]\n[file]"
    failed = RESPONSES.turn(ASKS, [ANSWERS.model_copy(update={"is_error": True})])[1]
    assert json.loads(failed)["output"] == "Error: 1"


@pytest.mark.parametrize("given_id", ["call_1_1_1", "functions.add:0", "toolu_01", "x" * 64, "call00001"])
def test_ids_of_other_providers_become_legal_and_are_told_apart(given_id: str) -> None:
    asks = Message(role="assistant", tool_calls=(ToolCall(id=given_id, name="a b", arguments="{oops"),))
    answers = Message(role="tool", call_id=given_id, content="1")
    turns = [RESPONSES.turn(asks, [answers], place=place) for place in (5, 6)]
    items = request([*HI, *turns[0], *turns[1]])["input"]
    assert items[1]["call_id"] == items[2]["call_id"] != items[3]["call_id"] == items[4]["call_id"]
    assert (items[1]["name"], items[1]["arguments"]) == ("a_b", "{}")


def conversation_of(protocol: ModelProtocol, model: str, opaque: Opaque | None) -> CachedConversation:
    made = CachedConversation(protocol, model)
    user = Message(role="user", content="hi")
    entries = [(user, None), (ASKS, opaque), (ANSWERS, None)]
    made.extend((LogMessage(i, message, "r", opaque=each) for i, (message, each) in enumerate(entries, 1)), 3)
    return made


def test_reasoning_goes_to_its_origin_byte_for_byte_and_to_nobody_else() -> None:
    sent = conversation_of(RESPONSES, "gpt/x", HERE).messages()
    assert b",".join(sent).count(THOUGHT.encode()) == 1
    assert json.loads(b"[%b]" % sent[1])[1]["call_id"] == CALL.id
    for protocol, model in (
        (RESPONSES, "gpt/y"),
        (RESPONSES, "azure/x"),
        (MESSAGES, "gpt/x"),
        (CHAT_COMPLETIONS, "gpt/x"),
    ):
        assert conversation_of(protocol, model, HERE).messages() == conversation_of(protocol, model, None).messages()


CHAT = Opaque("chat_completions/gpt/x", '{"reasoning_content":"hm"}')
CLAUDE = Opaque(
    "anthropic/gpt/x", '{"blocks":[{"type":"thinking","thinking":"t","signature":"s"},"call_0123456789abcdef0123"]}'
)


@pytest.mark.parametrize("opaque", [HERE, CHAT, CLAUDE], ids=lambda opaque: opaque.origin.partition("/")[0])
def test_what_a_provider_no_longer_takes_back_is_left_out_and_nothing_else(opaque: Opaque) -> None:
    protocol = PROTOCOLS[opaque.origin.partition("/")[0]]  # type: ignore[index]
    whole, without = (conversation_of(protocol, "gpt/x", each) for each in (opaque, None))
    assert whole.messages() != without.messages()
    dropped = ReasoningDropped(opaque.origin)
    assert [json.loads(b"[%b]" % each) for each in whole.dropping(dropped).messages()] == [
        json.loads(b"[%b]" % each) for each in without.messages()
    ]
    assert whole.messages() != without.messages(), "the first one is as it was"
    other = LogMessage(4, Message(role="user", content=""), "r", drops="responses/gpt/y")
    before = list(whole.messages())
    whole.extend([other], 4)
    assert whole.messages() == before, "somebody else's"
    whole.extend([LogMessage(5, Message(role="user", content=""), "r", drops=opaque.origin)], 5)
    assert whole.messages() == whole.dropping(dropped).messages() != before
