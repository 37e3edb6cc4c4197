"""Conversations that exist, and the error of those that do not."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.errors import UnknownConversation
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.vocabulary.ids import is_id


async def known_fields(redis: Connection, conversation_id: str, *names: str) -> Sequence[bytes | None]:
    """Fields of a conversation's hash.

    Raises:
        UnknownConversation: there is none of that id (any more).
    """
    check_conversation_id(conversation_id)
    there, deleting, *values = await redis.hmget(keys.conversation(conversation_id), ("id", "deleting", *names))
    if there is None or deleting is not None:
        raise unknown_conversation(conversation_id)
    return values


def check_conversation_id(text: str) -> None:
    """Raise UnknownConversation for a text that is no id of one: there is no key for it."""
    if not is_id("conv", text):
        raise unknown_conversation(text)


def unknown_conversation(conversation_id: str) -> UnknownConversation:
    """The error that says so."""
    return UnknownConversation(conversation_id)
