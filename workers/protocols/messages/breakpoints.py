"""Prompt-cache breakpoints: at most four, one behind the instructions, and one at each place where the newest three
model calls were made. The last call's place is thus marked again in the next one.

They are set when a request is put together and kept nowhere, on a block that may have one: a text, an image, or a
result that is not empty and says of no failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from .turns import AlternatingTurn

EPHEMERAL: Final = {"type": "ephemeral"}
_MARK: Final = b',"cache_control":%b}' % orjson.dumps(EPHEMERAL)
_PLACES: Final = 3
_NO_PLACE: Final = (b',"is_error":true}', b',"content":""}', b',"content":[]}')
"""Endings of blocks that may not have one; within a text, quotation marks have a backslash before them."""


def marked(turns: Sequence[AlternatingTurn]) -> None:
    """Put breakpoints on the newest turns of the user."""
    places = 0
    for turn in reversed(turns):
        if turn.role == "user" and _mark(turn):
            places += 1
            if places == _PLACES:
                break


def _mark(turn: AlternatingTurn) -> bool:
    """Put a breakpoint on the turn; tell whether it has a place for one."""
    for i in range(len(turn.content) - 1, -1, -1):
        if not turn.content[i].endswith(_NO_PLACE):
            turn.content[i] = turn.content[i][:-1] + _MARK
            return True
        blocks: list[dict[str, Any]] = orjson.loads(b"[%b]" % turn.content[i])
        places = [
            at for at, block in enumerate(blocks) if not block.get("is_error") and block.get("content") not in ("", [])
        ]
        if places:
            blocks[places[-1]]["cache_control"] = EPHEMERAL
            turn.content[i] = orjson.dumps(blocks)[1:-1]
            return True
    return False
