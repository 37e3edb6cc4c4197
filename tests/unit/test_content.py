"""What a message says: a text, or parts; and how parts are sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from palaver.content import parts_from
from palaver.limits import exceeded, most
from palaver.models import Message, ToolCall
from workers.protocols import CHAT_COMPLETIONS
from workers.protocols.chat_completions.breakpoints import marked

LOOK = {"type": "text", "text": "look"}
IMAGE = {"type": "image", "url": "https://example.com/a.png"}


def message(*parts: dict[str, Any], role: str = "user") -> Message:
    return Message.model_validate_json(json.dumps({"role": role, "content": parts}))


def test_text_alone_is_a_string() -> None:
    assert message(LOOK) == Message(role="user", content="look")
    assert message() == Message(role="user")
    assert message(LOOK, LOOK).text == "look\nlook"
    assert len(message(LOOK, LOOK).content) == 2


def test_parts_are_in_the_log_as_they_came() -> None:
    written = message(LOOK, IMAGE).model_dump_json(exclude_defaults=True)
    assert json.loads(written) == {"role": "user", "content": [LOOK, IMAGE]}
    assert parts_from(json.loads(written)["content"]) == message(LOOK, IMAGE).content


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image"},
        {"type": "image", "url": "file:///etc/passwd"},
        {"type": "image", "url": "https://a b"},
        {"type": "video", "url": "https://example.com"},
        {"type": "text", "text": 5},
        {"type": "text", "text": "x", "more": 1},
        {"text": "x"},
        "text",
    ],
)
def test_what_is_no_part_is_refused(part: Any) -> None:
    with pytest.raises(ValidationError):
        message(part)


def test_there_may_be_so_many() -> None:
    before = exceeded["message_parts"]
    assert len(message(*[LOOK] * most("message_parts")).content) == most("message_parts")
    with pytest.raises(ValidationError, match="at most 100"):
        message(*[LOOK] * (most("message_parts") + 1))
    assert exceeded["message_parts"] == before + 1


def test_a_chat_completion_is_sent_text_and_images() -> None:
    sent = CHAT_COMPLETIONS.message(message(LOOK, IMAGE))
    image = {"type": "image_url", "image_url": {"url": IMAGE["url"]}}
    assert json.loads(sent) == {"role": "user", "content": [LOOK, image]}
    assert CHAT_COMPLETIONS.parsed(sent) == [Message(role="user", content="look\n[image]")]
    (asks,) = CHAT_COMPLETIONS.turn(
        Message(role="assistant", content=parts_from([LOOK, LOOK]), tool_calls=(ToolCall(id="c", name="f"),)), ()
    )
    assert json.loads(asks)["content"] == [LOOK, LOOK]


def test_a_breakpoint_is_on_the_last_text_of_the_parts() -> None:
    (found,) = marked([CHAT_COMPLETIONS.message(message(LOOK, LOOK, IMAGE))])
    assert [("cache_control" in part, part["type"]) for part in json.loads(found)["content"]] == [
        (False, "text"), (True, "text"), (False, "image_url"),
    ]  # fmt: skip
    (found,) = marked([CHAT_COMPLETIONS.message(message(IMAGE, IMAGE))])
    assert b"cache_control" not in found
