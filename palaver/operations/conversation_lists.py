"""Lists of conversations: pages, counts, and several conversations by their ids."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.errors import Refused
from palaver.operations.backend import Backend, within_deadline
from palaver.schemas.conversation import Conversation, ConversationCount, ConversationFilter, ConversationOrder
from palaver.store.conversations.conversations import ListedConversations
from palaver.vocabulary.ids import is_id
from palaver.vocabulary.limits import count_exceeded, limit_of


async def list_conversations(
    backend: Backend,
    admitted: ConversationFilter,
    *,
    limit: int,
    cursor: str | None = None,
    order: ConversationOrder = "-updated",
) -> ListedConversations:
    """Return a page of the conversations that ``admitted`` lets through, in that order.

    Raises:
        Refused: ``invalid_cursor``.
    """
    if len(cursor or "") > limit_of("cursor"):
        count_exceeded("cursor")
        raise Refused("invalid_cursor", "The cursor is longer than any that a list gave.")
    page = backend.store.conversations.list(admitted, limit=limit, cursor=cursor or None, order=order)
    try:
        return await within_deadline(page)
    except ValueError:
        if not cursor:
            raise
        raise Refused("invalid_cursor", "The cursor is not one that a list of conversations gave.") from None


async def count_conversations(backend: Backend, admitted: ConversationFilter) -> ConversationCount:
    """Count the conversations that ``admitted`` lets through, among as many as one request may look at."""
    return await within_deadline(backend.store.conversations.count(admitted))


async def read_conversations(backend: Backend, ids: Sequence[str]) -> Sequence[Conversation | None]:
    """Return these conversations as they are now, each in the place of its id; None for those that are not there."""
    known = [id for id in ids if is_id("conv", id)]
    conversations = await within_deadline(backend.store.runs.conversations(known))
    by_id = {conversation.id: conversation for conversation in conversations}
    return [by_id.get(id) for id in ids]
