"""What the dialect keeps with a conversation, changed: with what follows from it for the conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias
from uuid import UUID

from palaver.errors import StateConflict
from palaver.schemas.conversation import ConversationPatch

from .. import operations
from ..operations import Backend
from .looking import NAME, Seen, look
from .state import Kept

_TRIES: Final = 5
"""How often a change is made anew because somebody else made one."""
_Patch: TypeAlias = Callable[[Seen, Kept], ConversationPatch]


async def keep(backend: Backend, conversation: UUID, patch: _Patch, **changes: Any) -> None:
    """Change fields of what is kept, and what follows for the conversation, unless somebody else does meanwhile.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StateConflict: ``conversation_revised``: others change it again and again.
        NoRoom, NotDurable, StoreUnavailable: it was not changed, or not safely.
    """
    for left in reversed(range(_TRIES)):
        seen = await look(backend, conversation)
        kept = seen.kept.changed(**changes)
        try:
            await operations.change_conversation(backend, seen.id, patch(seen, kept), kept={NAME: kept.text()})
            return
        except StateConflict as conflict:
            if conflict.code != "conversation_revised" or not left:
                raise


def with_its_agent(seen: Seen, _: Kept) -> ConversationPatch:
    """Nothing follows for the conversation."""
    return ConversationPatch(revision=seen.conversation.revision)
