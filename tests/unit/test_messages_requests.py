"""Requests in Anthropic's Messages: as its own SDK types them, and as its API wants a conversation to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from palaver.schemas.content import FilePart, ImagePart, TextPart
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.schemas.protocols import PROTOCOL_RULES
from palaver.steps.leases import LogMessage
from palaver.steps.verdicts import Condensed
from tests.unit.sdk_types import require_taken
from tests.unit.test_protocol_rules import SUM
from tests.unit.test_whole_turns import logs
from workers.protocols import MESSAGES, CallSettings, Offer
from workers.steps.conversations import CachedConversation

PARAMS = "anthropic.types.message_create_params.MessageCreateParams"
AGENT = AgentSpec(model="claude/sonnet", instructions="Be brief.")
OFFERS = [Offer("add", "Add.", {"type": "object", "properties": {"x": {"type": "integer"}}}), Offer("now", "", {})]
CACHED = CallSettings(cache=True, max_output_tokens=1000)
BARE = CallSettings(max_output_tokens=1)
BREAKPOINTS = 4


def request(
    messages: Sequence[bytes],
    agent: AgentSpec = AGENT,
    settings: CallSettings = CACHED,
    offers: Sequence[Offer] = OFFERS,
) -> dict[str, Any]:
    """The body of a request, which the SDK would take."""
    body: dict[str, Any] = json.loads(MESSAGES.body(agent, messages, offers, settings))
    require_taken(PARAMS, body)
    return body


def judge(body: dict[str, Any]) -> None:
    """What Anthropic refuses."""
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], "roles alternate, the user's first and last"
    ids: list[str] = []
    open_calls: list[str] = []
    for message in body["messages"]:
        blocks = message["content"]
        assert blocks
        assert blocks[-1]["type"] not in ("thinking", "redacted_thinking"), "no message ends with a thought"
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answered == open_calls
        assert all(block["type"] == "tool_result" for block in blocks[: len(answered)]), "results are first"
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        ids += open_calls
    assert not open_calls
    assert len({*ids}) == len(ids), "ids are unique"
    marked = [block for message in body["messages"] for block in message["content"] if "cache_control" in block]
    assert len(marked) + json.dumps([body.get("system"), body.get("tools")]).count("cache_control") <= BREAKPOINTS
    assert not any(block.get("is_error") or block["type"] in ("thinking", "redacted_thinking") for block in marked)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "hi"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "4"}]}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "add"}]},
    ],
)
def test_what_is_wrong_anywhere_is_noticed(message: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        require_taken(PARAMS, {"model": "m", "max_tokens": 1, "messages": [message]})


@pytest.mark.slow
@given(logs(), st.booleans())
def test_no_history_is_ever_refused(log: list[LogMessage], cached: bool) -> None:
    settings = CallSettings(cache=cached, max_output_tokens=1000)
    for end in range(1, len(log) + 1):
        conversation = CachedConversation(MESSAGES)
        conversation.extend(log[:end], log[end - 1].position)
        judge(request(conversation.messages(), settings=settings))
        part = conversation.older_part()
        if part is not None:
            ahead = conversation.having(Condensed("so far", part.through))
            judge(request(ahead.messages(), settings=settings))
            assert all(MESSAGES.parsed(text) for text in part.messages)


def test_the_options_have_their_own_names() -> None:
    agent = AgentSpec.model_validate_json(json.dumps({
        "model": "claude/sonnet", "temperature": 0.5, "top_p": 0.9, "stop": ["END"], "reasoning_effort": "high",
        "parallel_tool_calls": False, "tool_choice": "required", "extra_body": {"service_tier": "auto"},
        "response_format": {"type": "json_schema", "name": "sum", "schema": SUM},
    }))  # fmt: skip
    body = request([], agent, CallSettings(thinking="summarized", max_output_tokens=1000))
    del body["messages"]
    assert body == {
        "model": "sonnet", "max_tokens": 1000, "stream": True, "temperature": 0.5, "top_p": 0.9,
        "stop_sequences": ["END"], "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive", "display": "summarized"}, "service_tier": "auto",
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SUM}},
        "tools": [
            {"name": "add", "description": "Add.", "input_schema": OFFERS[0].parameters},
            {"name": "now", "input_schema": {"type": "object"}},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": {"name": "add"}}, {"type": "tool", "name": "add"}),
        ({"parallel_tool_calls": True}, {"type": "auto", "disable_parallel_tool_use": False}),
    ],
)
def test_a_choice_of_tools(given: dict[str, Any], sent: dict[str, Any] | None) -> None:
    agent = AgentSpec.model_validate_json(json.dumps({"model": "claude/sonnet", **given}))
    assert request([], agent).get("tool_choice") == sent
    assert "tool_choice" not in request([], agent, offers=[])


def test_an_agents_own_limit_goes_before_the_providers() -> None:
    assert request([], AgentSpec(model="claude/x", max_output_tokens=5))["max_tokens"] == 5
    assert request([])["max_tokens"] == 1000


IMAGES: list[tuple[str, dict[str, str]]] = [
    ("https://x.example/a.png", {"type": "url", "url": "https://x.example/a.png"}),
    ("data:image/png;base64,iVBO", {"type": "base64", "media_type": "image/png", "data": "iVBO"}),
]
FILES: list[tuple[str, dict[str, str]]] = [
    ("https://x.example/a.pdf", {"type": "url", "url": "https://x.example/a.pdf"}),
    ("data:application/pdf;base64,JVBE", {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}),
    ("data:text/plain;charset=utf-8;base64,w7w=", {"type": "text", "media_type": "text/plain", "data": "\u00fc"}),
    ("data:,a%20b", {"type": "text", "media_type": "text/plain", "data": "a b"}),
]


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        *((ImagePart(type="image", url=url), {"type": "image", "source": source}) for url, source in IMAGES),
        *(
            (FilePart(type="file", url=url, name="a"), {"type": "document", "title": "a", "source": source})
            for url, source in FILES
        ),
    ],
)
def test_images_and_files(part: ImagePart | FilePart, sent: dict[str, Any]) -> None:
    content = (TextPart(type="text", text="Look:"), part)
    body = request(
        [MESSAGES.message(Message(role="user", content=content))], settings=CallSettings(max_output_tokens=1)
    )
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Look:"}, sent]}]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (FilePart(type="file", url="data:text/csv;base64,YQ==", name="a.csv"), "a file of the type text/csv (send app"),
        (FilePart(type="file", url="data:text/plain,"), "a file without any data"),
        (
            FilePart(type="file", url="data:application/pdf,JVBE"),
            "a file that is not in base64 (send application/pdf or",
        ),
        (ImagePart(type="image", url="data:image/svg+xml,%3Csvg/%3E"), "an image of the type image/svg+xml (send"),
        (ImagePart(type="image", url="data:text/plain,hi"), "an image of the type text/plain (send image/gif or"),
        (ImagePart(type="image", url="data:nope"), "an image whose data: URL has no data (send"),
    ],
)
def test_data_that_are_refused_are_refused_at_submit_and_told_in_words_if_they_are_there(
    part: ImagePart | FilePart, said: str
) -> None:
    for role in ("user", "tool"):
        assert PROTOCOL_RULES["anthropic"].lacks(role, part).startswith(said)
    assert not PROTOCOL_RULES["chat_completions"].lacks("user", part)
    body = request([MESSAGES.message(Message(role="user", content=(part,)))])
    name = "file a.csv" if isinstance(part, FilePart) and part.name else part.type
    assert [block["text"] for block in body["messages"][0]["content"]] == [f"[{name}]"]


def _turns(*failed: bool) -> list[bytes]:
    """The user's words, and a turn with one call for each of ``failed``."""
    found = [MESSAGES.message(Message(role="user", content="hello"))]
    for place, is_error in enumerate(failed):
        asking = Message(role="assistant", tool_calls=(ToolCall(id="c", name="add"),))
        result = Message(role="tool", call_id="c", content="no" if is_error else "2", is_error=is_error)
        found += MESSAGES.turn(asking, [result], place=place)
    return found


def _marked(body: dict[str, Any]) -> list[int]:
    return [i for i, each in enumerate(body["messages"]) if any("cache_control" in block for block in each["content"])]


def test_each_of_the_newest_calls_left_a_breakpoint() -> None:
    assert _marked(request(_turns())) == [0]
    assert _marked(request(_turns(False))) == [0, 2]
    assert _marked(request(_turns(False, False, False))) == [2, 4, 6]
    # A breakpoint on a failure is refused for ever: the places before it have it.
    assert _marked(request(_turns(False, True, False))) == [0, 2, 6]
    assert _marked(request(_turns(False), settings=BARE)) == []


def test_a_breakpoint_is_on_another_block_if_the_last_one_may_not_have_it() -> None:
    calls = tuple(ToolCall(id=each, name="add") for each in "abc")
    results = [
        Message(role="tool", call_id="a", content="2"),
        Message(role="tool", call_id="b", content=""),
        Message(role="tool", call_id="c", content='"is_error":true}', is_error=True),
    ]
    turn = MESSAGES.turn(Message(role="assistant", tool_calls=calls), results)
    blocks = request([*_turns(), *turn])["messages"][2]["content"]
    assert ["cache_control" in block for block in blocks] == [True, False, False]
    tricky = MESSAGES.message(Message(role="user", content=',"is_error":true}'))
    assert _marked(request([tricky])) == [0]


def test_without_instructions_the_tools_have_the_first_breakpoint() -> None:
    bare = AgentSpec(model="claude/x", instructions=" ")
    body = request(_turns(), bare)
    assert "system" not in body
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]


def test_calls_of_another_provider_are_sent_with_ids_of_their_own_and_without_its_fields() -> None:
    """Others repeat ids from answer to answer, and what they want back means nothing here."""
    conversation = CachedConversation(MESSAGES, "claude/x")
    elsewhere = Opaque("chat_completions/x/y", '{"reasoning_content":"hidden"}')
    here = Opaque("anthropic/claude/x", '{"blocks":[{"type":"thinking","thinking":"t","signature":"s"},"toolu_1"]}')
    position = 0
    entries = [LogMessage(1, Message(role="user", content="2+2?"), "run_1")]
    for opaque, call_id, name in ((elsewhere, "call_0", "a.b"), (elsewhere, "call_0", "add"), (here, "toolu_1", "add")):
        position = len(entries)
        asking = Message(role="assistant", tool_calls=(ToolCall(id=call_id, name=name, arguments="{oops"),))
        result = Message(role="tool", call_id=call_id, content="4")
        entries += [LogMessage(position + 1, asking, "run_1", opaque=opaque), LogMessage(position + 2, result, "run_1")]
    conversation.extend(entries, len(entries))
    body = request(conversation.messages())
    judge(body)
    asked = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
    assert [[block["type"] for block in blocks] for blocks in asked] == [["tool_use"]] * 2 + [["thinking", "tool_use"]]
    assert [blocks[-1]["id"] for blocks in asked] == ["call_0_3", "call_0_5", "toolu_1"]
    assert [blocks[-1]["name"] for blocks in asked] == ["a_b", "add", "add"]
    assert asked[0][0]["input"] == {}


@pytest.mark.parametrize(
    "arguments", ['{"x": NaN}', '{"x": 1e999}', '{"x": 123456789012345678901234567890}', "", "[1]"]
)
def test_arguments_are_json_whatever_a_model_wrote(arguments: str) -> None:
    asking = Message(role="assistant", tool_calls=(ToolCall(id="c", name="add", arguments=arguments),))
    request(MESSAGES.turn(asking, [Message(role="tool", call_id="c", content="4")]))


def test_what_a_paused_answer_brought_is_gone_on_with_and_any_other_is_followed_by_the_user() -> None:
    plain = request([MESSAGES.message(Message(role="assistant", content="I was"))])
    assert [message["role"] for message in plain["messages"]] == ["user", "assistant", "user"]
    blocks = '{"blocks":[12,{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}]}'
    paused = MESSAGES.message(Message(role="assistant", content="Let me look."), blocks)
    body = request([*_turns(), paused])
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]
