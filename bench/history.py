"""What was said in a conversation before something is measured in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from bench.asked import BenchError
from palaver.schemas.models import Message

_WORDS: Final = "What comes before is not to be forgotten, and not to be told again either."
ASKED: Final = Message(role="user", content=_WORDS)
ANSWERED: Final = Message(role="assistant", content=_WORDS)
_OF_AN_INPUT: Final = 1_000
"""Messages of one, with the answer to it."""


async def conversation(messages: int, say: Callable[[tuple[Message, ...], str | None], Awaitable[str]]) -> str:
    """One with so many messages, an even number; its id. ``say`` is given an input and where to say it (None for a new
    conversation), sees it answered once, and returns where that was. Raises BenchError."""
    place: str | None = None
    while messages > 0:
        now = min(messages, _OF_AN_INPUT)
        place = await say((*(ASKED, ANSWERED) * (now // 2 - 1), ASKED), place)
        messages -= now
    if place is None:
        raise BenchError("a conversation has at least two messages")
    return place
