"""Prompt-cache breakpoints, for providers that take them (``cache_control`` in the providers file).

A provider keeps what it computed of a prompt up to each breakpoint, and a later prompt that begins the same is cheaper
and quicker. At most four are allowed: one on the system message, which every call of the agent shares, and one at each
place where the newest three model calls were made. The last call's place is thus marked again in the next one.

They are set when a request is put together and kept nowhere: what failed in between neither loses nor doubles one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

_PLACES: Final = 3
_EPHEMERAL: Final = {"type": "ephemeral"}
_ASSISTANT: Final = b'{"role":"assistant"'


def marked(messages: Sequence[bytes]) -> list[bytes]:
    """``messages`` with breakpoints on the user and tool messages that the model was last asked with."""
    result = list(messages)
    places, ready = 0, True
    for i in range(len(result) - 1, -1, -1):
        if result[i].startswith(_ASSISTANT):
            ready = True
        elif ready and (text := _with_breakpoint(result[i])) is not None:
            result[i], ready = text, False
            places += 1
            if places == _PLACES:
                break
    return result


def system_message(instructions: str, *, cached: bool) -> dict[str, Any]:
    """Return the message with the instructions of the agent."""
    return {"role": "system", "content": [_block(instructions)] if cached else instructions}


def _with_breakpoint(text: bytes) -> bytes | None:
    """None for a message without text: a provider refuses a breakpoint on an empty block."""
    message = orjson.loads(text)
    parts = message["content"]
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    texts = [part for part in parts if part.get("text")]
    if not texts:
        return None
    texts[-1]["cache_control"] = _EPHEMERAL
    message["content"] = parts
    return orjson.dumps(message)


def _block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": _EPHEMERAL}
