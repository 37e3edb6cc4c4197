"""Turns of the user and the assistant, one after the other: what this protocol wants a conversation to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from .blocks import CLOSING, OPENINGS, written

_FIRST: Final = "[Automatic note] The conversation begins with what the assistant said."
_GO_ON: Final = "[Automatic note] Go on."
_GOES_ON_BY_ITSELF: Final = ("tool_use", "tool_result")
"""Endings of the type of a block after which the provider wants no word of the user: it is of the provider's own
tool."""


class AlternatingTurn:
    """Everything that one side says before the other one does."""

    __slots__ = ("content", "role")

    def __init__(self, role: str, content: bytes) -> None:
        self.role = role
        self.content = [content]
        """JSON of blocks, separated by commas."""

    def written(self) -> bytes:
        """Its JSON, as one message."""
        return OPENINGS[self.role] + b",".join(self.content) + CLOSING


def alternating(messages: Sequence[bytes]) -> list[AlternatingTurn]:
    """The turns that ``messages`` make. The first and the last one are the user's: what a model said is not gone on
    with."""
    turns: list[AlternatingTurn] = []
    for message in messages:
        role = "user" if message.startswith(OPENINGS["user"]) else "assistant"
        content = message[len(OPENINGS[role]) : -len(CLOSING)]
        if turns and turns[-1].role == role:
            turns[-1].content.append(content)
        else:
            turns.append(AlternatingTurn(role, content))
    if not turns or turns[0].role != "user":
        turns.insert(0, _note(_FIRST))
    if turns[-1].role == "assistant" and not _is_paused(turns[-1]):
        turns.append(_note(_GO_ON))
    return turns


def _is_paused(turn: AlternatingTurn) -> bool:
    *_, last = orjson.loads(turn.written())["content"]
    kind: str = last["type"]
    return kind.endswith(_GOES_ON_BY_ITSELF)


def _note(text: str) -> AlternatingTurn:
    block = written("user", [orjson.dumps({"type": "text", "text": text})])
    return AlternatingTurn("user", block[len(OPENINGS["user"]) : -len(CLOSING)])
