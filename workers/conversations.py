"""The conversation as a model sees it, derived from the log and from nothing else.

The log is append-only, so what was derived from its beginning stays right: a worker keeps the newest conversations
it worked on as ready-made JSON, and a claim brings only what the log has beyond that.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

import orjson

from palaver.leases import LogMessage
from palaver.models import Message

_KEPT_BYTES: Final = 64 << 20
"""Of JSON, in all conversations of a worker process."""


class Conversation:
    """Messages in the provider's form, each already JSON, up to a position of the log.

    Whole turns: the answers to an assistant message's calls follow it in call order, whatever order they came in.
    """

    def __init__(self) -> None:
        self.position = 0
        self.size = 0
        self._messages: list[bytes] = []
        self._expected: dict[str, bytes | None] = {}

    def extend(self, entries: Iterable[LogMessage], position: int) -> None:
        """Take in what the log has beyond this position; what is known already changes nothing."""
        for entry in entries:
            if entry.position > self.position:
                self._add(entry.message)
        self.position = max(self.position, position)

    def messages(self) -> list[bytes]:
        """The messages so far."""
        return self._messages

    def _add(self, message: Message) -> None:
        if message.role == "tool":
            self._answer(message)
            return
        if message.role == "assistant" and not message.content and not message.tool_calls:
            return
        for call_id in [call_id for call_id, answer in self._expected.items() if answer is None]:
            # The store seals every turn, so this does not happen; one lost answer must not cost the conversation.
            self._answer(Message(role="tool", call_id=call_id, content="No result was recorded.", is_error=True))
        self._append(_wire(message))
        self._expected = {call.id: None for call in message.tool_calls}

    def _answer(self, message: Message) -> None:
        if message.call_id not in self._expected:
            return
        self._expected[message.call_id] = _wire(message)
        if None not in self._expected.values():
            for answer in self._expected.values():
                self._append(answer)  # type: ignore[arg-type]
            self._expected = {}

    def _append(self, text: bytes) -> None:
        # A copy: what orjson returns holds on to the 4 KiB that it was written into, thirty times its length.
        self._messages.append(bytes(memoryview(text)))
        self.size += sys.getsizeof(text)


def _wire(message: Message) -> bytes:
    """One message in the form of the OpenAI chat completions API."""
    if message.role == "tool":
        content = f"Error: {message.content}" if message.is_error else message.content
        return orjson.dumps({"role": "tool", "tool_call_id": message.call_id, "content": content})
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return orjson.dumps(wire)


def _arguments(text: str) -> str:
    """The arguments as the model wrote them; an empty object for what is no JSON: providers refuse to read it."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return "{}"
    return text


class Conversations:
    """The newest conversations of a worker process, within a bound of memory."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Conversation, int]] = OrderedDict()
        self._size = 0

    def get(self, conversation_id: str) -> Conversation:
        """What is known here of the conversation; an empty one if nothing is."""
        kept = self._kept.get(conversation_id)
        return Conversation() if kept is None else kept[0]

    def keep(self, conversation_id: str, conversation: Conversation) -> None:
        """Remember the conversation as the newest one; the oldest ones make room."""
        self._size -= self._kept.pop(conversation_id, (None, 0))[1]
        self._kept[conversation_id] = (conversation, conversation.size)
        self._size += conversation.size
        while self._size > _KEPT_BYTES and len(self._kept) > 1:
            self._size -= self._kept.popitem(last=False)[1][1]
