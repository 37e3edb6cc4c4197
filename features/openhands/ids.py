"""Names of events: made of their place in a conversation, so that they are the same at every look, in any process.

    00000000-002a-8 01 5-b7c2-…     position 42 of the log, its first part, and a digest of that and of the conversation

The place of an event is read from its name. The name of an action is made of its call: what answers the call names the
action without a look at where it stands.
"""

from __future__ import annotations

import hashlib
from typing import Final
from uuid import UUID

FIRST: Final = 0
"""The position before the log: the system prompt stands there."""
_VERSION: Final = 8 << 76
_VARIANT: Final = 0b10 << 62
_DIGEST: Final = (1 << 62) - 1
_PARTS: Final = 1 << 12


def event_id(conversation: UUID, position: int, part: int = 0) -> str:
    """Return the id of the event that is one part of an entry of the log."""
    place = position << 80 | (part % _PARTS) << 64
    return str(UUID(int=place | _VERSION | _VARIANT | _digest(conversation, f"{position}/{part}")))


def place_of(conversation: UUID, event: str) -> tuple[int, int] | None:
    """Return the position and the part of an event; None for the id of an action, and for an id that is none of this
    conversation's events."""
    try:
        number = UUID(event)
    except ValueError:
        return None
    position, part = number.int >> 80, number.int >> 64 & _PARTS - 1
    return (position, part) if event_id(conversation, position, part) == str(number) else None


def action_id(conversation: UUID, run_id: str, step: str | None, call_id: str) -> str:
    """Return the id of the action that a call is. ``step`` is that of the model which asked for it, or of the call
    itself."""
    of_model = (step or "").partition("/")[0]
    digest = hashlib.sha256(f"{conversation.hex}\n{run_id}\n{of_model}\n{call_id}".encode()).digest()
    return str(UUID(bytes=digest[:16], version=5))


def _digest(conversation: UUID, text: str) -> int:
    digest = hashlib.blake2s(f"{conversation.hex}/{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) & _DIGEST
