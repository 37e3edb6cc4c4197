"""Conversations: begin, read, change, what was said, delete."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel

from palaver.errors import FieldError, Refused
from palaver.events import MESSAGES, EventKind
from palaver.schemas.conversation import Conversation, ConversationMessage, ConversationPatch, NewConversation
from palaver.schemas.models import Message
from palaver.store.conversations.conversations import DialectText, DialectTexts
from palaver.store.reading.events import LogEntry
from palaver.vocabulary.ids import is_id, uuid_of
from palaver.vocabulary.limits import count_exceeded, limit_of

from .admission import admit_conversation
from .backend import Backend, within_deadline

LOOKED_THROUGH: Final = 2000
"""Log entries that one page looks through, about: status changes lie between messages."""


IncludedInMessages = Literal["reasoning", "opaque"] | None
"""What of a message is shown only on request: what the model thought, or all that its provider wants back unchanged."""


LogPages = AsyncGenerator[Sequence[LogEntry], None]


class MessagePage(BaseModel):
    """A page of messages, in the order that was asked for."""

    data: list[ConversationMessage]
    next_after: int
    """The ``after`` of the next page."""
    has_more: bool


async def create_conversation(
    backend: Backend, wanted: NewConversation, *, kept: DialectTexts | None = None
) -> tuple[Conversation, bool]:
    """An empty conversation; or, with true, the one that has the wanted id already, as it is. ``kept`` are texts that
    dialects keep with it, by their names.

    Raises:
        Refused: everything that is wrong with the agent, the id, the secrets or the texts.
        StateConflict: ``secrets_full``; ``conversation_busy``, the one of that id is being deleted.
        NoRoom, NotDurable, StoreUnavailable: it was not begun, or not safely.
    """
    chosen = None if wanted.id is None else chosen_id(backend, wanted.id)
    check_kept(kept)
    wanted = await admit_conversation(wanted, backend)
    return await within_deadline(backend.store.conversations.begin(wanted, chosen, dialect_texts=kept))


async def change_conversation(
    backend: Backend, conversation_id: str, wanted: ConversationPatch, *, kept: DialectTexts | None = None
) -> Conversation:
    """The conversation with what is given in the place of what there was. ``kept`` as with `create_conversation`; None
    takes a text away.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StateConflict: ``conversation_revised``, somebody else has changed it.
        Refused: everything that is wrong with the agent or the texts.
        NoRoom, NotDurable, StoreUnavailable: it was not changed, or not safely.
    """
    check_kept(kept)
    wanted = await admit_conversation(wanted, backend)
    return await within_deadline(backend.store.conversations.change(conversation_id, wanted, dialect_texts=kept))


async def read_kept(backend: Backend, conversation_id: str, dialect: str) -> DialectText:
    """What a dialect keeps with a conversation.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    return await within_deadline(backend.store.conversations.dialect_text(conversation_id, dialect))


def conversation_of(backend: Backend, number: UUID) -> str:
    """The id of the conversation that others know by ``number``, whether there is one or not."""
    return backend.store.runs.conversation_of_number(number)


def chosen_id(backend: Backend, text: str) -> str:
    """The id that a client has chosen, which may be a UUID.

    Raises:
        Refused: it is none.
    """
    try:
        number = uuid_of(text) if is_id("conv", text) else UUID(text)
    except ValueError:
        number = None
    found = None if number is None else conversation_of(backend, number)
    if found is None or (is_id("conv", text) and text != found):
        raise Refused.of_faults(
            [FieldError("/id", "validation_error", "must be a UUID, or an id that this server made")]
        )
    return found


def check_kept(kept: DialectTexts | None) -> None:
    """Let texts of dialects in.

    Raises:
        Refused: one is too long.
    """
    if any(len((text or "").encode()) > limit_of("kept") for text in (kept or {}).values()):
        count_exceeded("kept")
        raise Refused("payload_too_large", f"A conversation keeps {limit_of('kept')} bytes of this at most.")


async def read_conversation(backend: Backend, conversation_id: str) -> Conversation:
    """The conversation as it is now.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    return await within_deadline(backend.store.runs.conversation(conversation_id))


async def delete_conversation(backend: Backend, conversation_id: str) -> None:
    """Forget a conversation none of whose runs is going on or queued.

    Raises:
        UnknownConversation, StateConflict: there is no such conversation, or it is busy.
        NotDurable, StoreUnavailable: it may be there still.
    """
    await within_deadline(backend.store.control.delete_conversation(conversation_id))


async def read_messages(
    backend: Backend,
    conversation_id: str,
    *,
    after: int,
    limit: int,
    include: IncludedInMessages = None,
    newest_first: bool = False,
) -> MessagePage:
    """Messages and tool results behind a position, in the order in which the model sees them; with ``newest_first`` the
    other way, from that position or the end back.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    pages = backend.store.runs.pages(conversation_id, after=after, newest_first=newest_first)
    return await within_deadline(_page(pages, after, limit, include))


async def has_said(backend: Backend, conversation_id: str, messages: int) -> bool:
    """Whether models are told of so many messages, or more, among the newest entries of the log, word for word: those
    that a summary stands for do not count.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    pages = backend.store.runs.pages(conversation_id, newest_first=True)
    return await within_deadline(_has(pages, messages))


async def _has(entries: LogPages, messages: int) -> bool:
    """Of entries that are given newest first."""
    looked, found, through = 0, 0, 0
    async with aclosing(entries) as pages:
        async for page in pages:
            for entry in page:
                if entry.withdrawn:
                    continue
                if entry.type == EventKind.CONVERSATION_CONDENSED:
                    through = max(through, entry.data["through"])
                found += entry.type in MESSAGES and entry.position > through
            looked += len(page)
            if found >= messages or looked >= LOOKED_THROUGH:
                break
    return found >= messages


async def _page(entries: LogPages, after: int, limit: int, include: IncludedInMessages) -> MessagePage:
    found: list[ConversationMessage] = []
    position, looked, size = after, 0, 0
    async with aclosing(entries) as pages:
        async for page in pages:
            for entry in page:
                if entry.type in MESSAGES:
                    if len(found) == limit or _is_full(size):
                        return MessagePage(data=found, next_after=position, has_more=True)
                    found.append(_message(entry, include))
                    shown = entry.opaque if include == "opaque" else None
                    size += _size(found[-1]) + (len(shown.fields) if shown else 0)
                position = entry.position
            looked += len(page)
            if looked >= LOOKED_THROUGH:
                return MessagePage(data=found, next_after=position, has_more=True)
    return MessagePage(data=found, next_after=position, has_more=False)


def _is_full(size: int) -> bool:
    """Whether a page that has so many bytes already ends here."""
    if size <= limit_of("answer_bytes"):
        return False
    count_exceeded("answer_bytes")
    return True


def _size(message: Message) -> int:
    """Characters, but for what is short anyway."""
    return len(str(message.content)) + sum(len(call.arguments) for call in message.tool_calls)


def _message(entry: LogEntry, include: IncludedInMessages) -> ConversationMessage:
    data, opaque = entry.data, entry.opaque
    said = data["message"]
    if opaque and include == "reasoning" and (thoughts := opaque.reasoning()):
        said = {**said, "content": _behind(thoughts, said.get("content", ""))}
    return ConversationMessage(
        position=entry.position,
        run_id=entry.run_id or None,
        at=entry.at,
        nudge=data.get("nudge", False),
        steer=data.get("steer", False),
        withdrawn=entry.withdrawn,
        opaque=opaque.shown() if opaque and include == "opaque" else None,
        **said,
    )


def _behind(thoughts: str, content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of a message, as parts, with what the model thought before it."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    return [{"type": "reasoning", "text": thoughts}, *content]
