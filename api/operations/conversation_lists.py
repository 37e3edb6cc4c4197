"""Lists of conversations: pages, numbers, and several by their ids."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.errors import Refused
from palaver.schemas.conversation import Conversation, ConversationCount, ConversationFilter, ConversationOrder
from palaver.store.conversations.conversations import ListedConversations
from palaver.vocabulary.ids import is_id
from palaver.vocabulary.limits import count_exceeded, limit_of

from .backend import Backend, within_deadline


async def list_conversations(
    backend: Backend,
    admitted: ConversationFilter,
    *,
    limit: int,
    cursor: str | None = None,
    order: ConversationOrder = "-updated",
) -> ListedConversations:
    """Conversations that ``admitted`` lets through, in that order.

    Raises:
        Refused: ``invalid_cursor``.
    """
    if len(cursor or "") > limit_of("cursor"):
        count_exceeded("cursor")
        raise Refused("invalid_cursor", "The cursor is longer than any that a list gave.")
    found = backend.store.conversations.list(admitted, limit=limit, cursor=cursor or None, order=order)
    try:
        return await within_deadline(found)
    except ValueError:
        if not cursor:
            raise
        raise Refused("invalid_cursor", "The cursor is not one that a list of conversations gave.") from None


async def count_conversations(backend: Backend, admitted: ConversationFilter) -> ConversationCount:
    """How many conversations ``admitted`` lets through, as far as may be looked."""
    return await within_deadline(backend.store.conversations.count(admitted))


async def read_conversations(backend: Backend, ids: Sequence[str]) -> Sequence[Conversation | None]:
    """These conversations as they are now, each in the place of its id; None for those that are not there."""
    known = [each for each in ids if is_id("conv", each)]
    found = {each.id: each for each in await within_deadline(backend.store.runs.conversations(known))}
    return [found.get(each) for each in ids]
