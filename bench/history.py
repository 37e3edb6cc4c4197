"""What was said in a conversation before something is measured in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from palaver.models import Message

_WORDS: Final = "What comes before is not to be forgotten, and not to be told again either."
ASKED: Final = Message(role="user", content=_WORDS)
ANSWERED: Final = Message(role="assistant", content=_WORDS)
_OF_AN_INPUT: Final = 1_000
"""Messages of one, with the answer to it."""


def inputs(messages: int) -> Iterator[tuple[Message, ...]]:
    """What to say one after the other, each answered once, for a conversation with so many messages: an even number."""
    while messages > 0:
        now = min(messages, _OF_AN_INPUT)
        yield (*(ASKED, ANSWERED) * (now // 2 - 1), ASKED)
        messages -= now
