"""Where older clients are in a log when a process ends.

They connect again, once a process says that it goes; but they neither say what they have heard, nor do they read what
they have missed. So whoever ends leaves the place to whoever is next.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from palaver.conversation import ConversationPatch

from .. import operations
from ..operations import Backend
from .looking import NAME, Seen

_PLACE: Final = f"{NAME}.place"
_SOON: Final = timedelta(minutes=2)
"""In which a client is back: it tries again after 1, 2, 4, … seconds, 30 at most. Later, it is another one."""


async def leave_place(backend: Backend, seen: Seen, position: int) -> None:
    """Keep the position up to which the conversation's client was told everything."""
    place = f"{position} {datetime.now(UTC).isoformat()}"
    await operations.change_conversation(backend, seen.id, ConversationPatch(), kept={_PLACE: place})


async def place_left(backend: Backend, seen: Seen) -> int | None:
    """That position, if one was kept just now."""
    kept = await operations.read_kept(backend, seen.id, _PLACE)
    if kept.text is None:
        return None
    position, at = kept.text.split()
    return int(position) if datetime.now(UTC) - datetime.fromisoformat(at) < _SOON else None
