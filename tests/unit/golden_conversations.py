"""Conversations as the log has them, with what is said of the requests that they become (test_golden_requests.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from palaver.schemas.content import FilePart, ImagePart, Part, TextPart
from palaver.schemas.models import Message, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.schemas.protocols import ProtocolName
from palaver.steps.leases import LogMessage
from workers.protocols import CallSettings

MODEL: Final = "it/model"
IDS: Final[Mapping[ProtocolName, tuple[str, str]]] = {
    "chat_completions": ("call_1", "call_2"),
    "anthropic": ("toolu_1", "toolu_2"),
    "responses": ("call_0000000000000001", "call_0000000000000002"),
}
"""Of calls, as each provider makes them."""
THOUGHT_OF: Final[Mapping[ProtocolName, str]] = {
    "chat_completions": """{"reasoning_content":"Hm, \\u2026\\n","tool_calls":{"call_1":{"extra_content":
        {"google":{"thought_signature":"c2ln","weight":1.50,"a":1e2}}}}}""",
    "anthropic": """{"blocks":[{"type":"thinking","thinking":"Hm, \\u2026\\n","signature":"c2ln"},
        {"type":"redacted_thinking","data":"eA==","weight":1.50},8,"toolu_1","toolu_2"]}""",
    "responses": """{"items":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gA==","weight":1.50},
        [8,"commentary"],"call_0000000000000001",
        {"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"gB=="},"call_0000000000000002"]}""",
}
"""What each wants back with two calls and the words before them."""


def thought(protocol: ProtocolName) -> Opaque:
    """Of the model that is asked."""
    return Opaque(f"{protocol}/{MODEL}", THOUGHT_OF[protocol])


@dataclass(frozen=True)
class Conversation:
    """A conversation in which a model is asked next, in each protocol."""

    name: str
    entries: Callable[[ProtocolName], Sequence[LogMessage]]
    agent: Mapping[str, Any] = field(default_factory=dict)
    settings: CallSettings = field(default_factory=lambda: CallSettings(max_output_tokens=100))


def _log(*said: Message | tuple[Message, Opaque]) -> list[LogMessage]:
    pairs = [each if isinstance(each, tuple) else (each, None) for each in said]
    return [LogMessage(place, message, "run_1", opaque=opaque) for place, (message, opaque) in enumerate(pairs, 1)]


def _user(content: str | Sequence[Part] = 'Wie viel ist "1 + 1"?\t🦊') -> Message:
    return Message(role="user", content=content if isinstance(content, str) else tuple(content))


def _asks(*calls: tuple[str, str, str], said: str = "") -> Message:
    made = tuple(ToolCall(id=given, name=name, arguments=arguments) for given, name, arguments in calls)
    return Message(role="assistant", content=said, tool_calls=made)


def _told(call_id: str, content: str | Sequence[Part], *, failed: bool = False) -> Message:
    return Message(
        role="tool",
        call_id=call_id,
        name="add",
        content=content if isinstance(content, str) else tuple(content),
        is_error=failed,
    )


def _loop(protocol: ProtocolName) -> list[LogMessage]:
    """Two tools in a turn, with odd digits, spaces and letters in their arguments; one of them fails."""
    first, second = IDS[protocol]
    asks = _asks((first, "add", '{"y": 1.50,  "x":1e2, "who":"\\u00e4 \\/ Ö"}'), (second, "now", ""), said="Moment:\n")
    told = _told(first, "101.5"), _told(second, "no clock: <ü>", failed=True)
    return _log(_user(), (asks, thought(protocol)), *told)


def _mixed(protocol: ProtocolName) -> list[LogMessage]:
    """Other models began: ids that are no ids everywhere, a name that is none, arguments that are no JSON."""
    elsewhere = Opaque("chat_completions/other/x", '{"reasoning_content":"hidden"}')
    strange = _asks(("a/b c", "a.b", "{oops"), ("call_1", "add", '{"x": 1}'))
    return [
        *_log(_user(), (strange, elsewhere), _told("a/b c", "", failed=True), _told("call_1", "")),
        LogMessage(5, _asks(("call_1", "add", '{"x": 2}')), "run_1", opaque=elsewhere),
        LogMessage(6, _told("call_1", "3"), "run_1"),
    ]


_PICTURE: Final = ImagePart.of(b"\x89PNG", "image/png")
_PARTS: Final = (TextPart(type="text", text="Schau:"), _PICTURE, FilePart.of(b"%PDF-", "application/pdf", name="a.pdf"))

CONVERSATIONS: Final = (
    Conversation("question", lambda _: _log(_user())),
    Conversation("tool-loop", _loop),
    Conversation("tool-loop-cached", _loop, settings=CallSettings(max_output_tokens=100, cache=True)),
    Conversation(
        "turn-after-it",
        lambda protocol: [
            *_loop(protocol),
            LogMessage(5, Message(role="assistant", content="101,5."), "run_1"),
            LogMessage(6, _user("And\nnow?"), "run_2"),
        ],
    ),
    Conversation("began-elsewhere", _mixed),
    Conversation(
        "images-and-files",
        lambda _: _log(_user(_PARTS), _asks(("c1", "add", "{}")), _told("c1", _PARTS), _user("And this?")),
    ),
    Conversation(
        "condensed",
        lambda protocol: [
            *_loop(protocol),
            LogMessage(5, Message(role="user", content="They added."), "run_1", through=4),
            LogMessage(6, Message(role="user", content="Try again."), "run_1", nudge=True),
        ],
    ),
    Conversation(
        "cut-off",
        lambda _: _log(_user(), Message(role="assistant", content="It is", partial=True), _user("Go on.")),
    ),
    Conversation(
        "no-longer-taken",
        lambda protocol: [
            *_loop(protocol),
            LogMessage(5, Message(role="user", content=""), "run_1", drops=f"{protocol}/{MODEL}"),
        ],
    ),
    Conversation(
        "options",
        lambda _: _log(_user("hi")),
        agent={
            "instructions": "Sei kurz.\n",
            "stream": False,
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 50,
            "reasoning_effort": "low",
            "parallel_tool_calls": False,
            "tool_choice": {"name": "add"},
            "response_format": {"type": "json_schema", "name": "sum", "schema": {"type": "object"}},
            "extra_body": {"z": [1.5, {"b": 1, "a": 2}]},
        },
        settings=CallSettings(cache=True, thinking="summarized", max_completion_tokens=True),
    ),
)
