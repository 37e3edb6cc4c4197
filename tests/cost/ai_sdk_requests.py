"""The same for the routes of chats of the AI SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from palaver.vocabulary.limits import limit_of
from tests.cost.mcp_requests import EVERY as OTHERS
from tests.cost.requests import Ask, Case, submitted
from tests.unit.api_world import World

_CHAT: Final = "/ui/agents/support/chat"
_TEXT: Final = {"type": "text", "text": "hello"}
_VALUES: Final = 1_500
"""Messages, or parts of one, about as many as there may be values."""


def _sent(messages: Callable[[int], list[dict[str, Any]]]) -> Callable[[World, int], Awaitable[Ask]]:
    """Messages that are refused once all of it was looked at: the stream of an answer would not end here."""

    async def prepare(api: World, n: int) -> Ask:
        return Ask(_CHAT, {"id": "chat-1", "messages": messages(n)})

    return prepare


def _of_chat(rest: str) -> Callable[[World, int], Awaitable[Ask]]:
    """A request about a chat with ``n`` messages, whose answer was stopped."""

    async def prepare(api: World, n: int) -> Ask:
        run = await submitted(api, n)
        await api.store.runs.cancel(run["id"])
        return Ask(f"{_CHAT}/{run['conversation_id']}{rest}")

    return prepare


_ONE: Final = "/ui/agents/{name}/chat/{chat_id}"
_SEND: Final = "POST /ui/agents/{name}/chat"
EVERY: Final = (
    Case(_SEND, "messages", _VALUES, _sent(lambda n: [{"id": "m", "role": "system", "parts": [_TEXT]}] * n)),
    Case(_SEND, "parts of a message", _VALUES, _sent(lambda n: [
        {"id": "m", "role": "user", "parts": [*[_TEXT] * n, {"type": "data-x", "data": 1}]}])),
    Case(f"GET {_ONE}/stream", "entries", limit_of("input_messages"), _of_chat("/stream")),
    Case(f"POST {_ONE}/stop", "entries", limit_of("input_messages"), _of_chat("/stop")),
    Case(f"GET {_ONE}/messages", "entries", limit_of("input_messages"), _of_chat("/messages?limit=100")),
    *OTHERS,
)  # fmt: skip
"""With those of all others. The last one is the cheapest."""
