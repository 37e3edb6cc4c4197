"""Conversations: begin, read, change, delete; and their messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Literal
from uuid import UUID

from palaver.errors import FieldError, Refused, UnknownConversation
from palaver.events import MESSAGES, EventKind
from palaver.operations.admission import admit_conversation, check_heard
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.conversation import Conversation, ConversationMessage, ConversationPatch, NewConversation
from palaver.schemas.fields import DataModel
from palaver.schemas.models import Message
from palaver.store.conversations.conversations import DialectText, DialectTexts
from palaver.store.reading.events import LogEntry
from palaver.store.reading.reading import StandingAgent
from palaver.store.redis.reach import is_reached
from palaver.vocabulary.ids import is_id, tenant_of, uuid_of
from palaver.vocabulary.limits import count_exceeded, limit_of

LOOKED_THROUGH: Final = 2000
"""Log entries that one page looks through, about: status changes lie between messages."""


IncludedInMessages = Literal["reasoning", "opaque"] | None
"""The part of a message that is shown only on request: the model's reasoning, or all that its provider wants back
unchanged."""


LogPages = AsyncGenerator[Sequence[LogEntry], None]


class MessagePage(DataModel):
    """A page of messages, in the order that was asked for."""

    data: list[ConversationMessage]
    next_after: int
    """The ``after`` of the next page."""
    has_more: bool


async def create_conversation(
    backend: Backend, body: NewConversation, caller: Caller, *, dialect_texts: DialectTexts | None = None
) -> tuple[Conversation, bool]:
    """Begin an empty conversation; or return, with true, the one that has the chosen id already, as it is.
    ``dialect_texts`` are texts that dialects store with it, by the names of the dialects.

    Raises:
        Refused: everything that is wrong with the agent, the id, the secrets or the texts.
        StateConflict: ``secrets_full``; ``conversation_busy``, the one of that id is being deleted.
        NoRoom, NotDurable, StoreUnavailable: it was not begun, or not safely.
    """
    chosen = None if body.id is None else chosen_id(backend, body.id)
    check_dialect_texts(dialect_texts)
    admitted = await admit_conversation(body, backend, caller)
    if chosen is not None:
        await within_deadline(backend.store.memories.bring_back(chosen))
    beginning = backend.store.conversations.begin(
        admitted.body, chosen, dialect_texts=dialect_texts, by=caller.identity, agent_by=admitted.agent_by
    )
    return await within_deadline(beginning)


async def change_conversation(
    backend: Backend,
    conversation_id: str,
    body: ConversationPatch,
    caller: Caller,
    *,
    dialect_texts: DialectTexts | None = None,
) -> Conversation:
    """Replace the fields of a conversation that ``body`` has. ``dialect_texts`` are as with `create_conversation`; None
    removes a text.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StateConflict: ``conversation_revised``, another client has changed it.
        Refused: everything that is wrong with the agent or the texts.
        NoRoom, NotDurable, StoreUnavailable: it was not changed, or not safely.
    """
    check_dialect_texts(dialect_texts)
    await check_heard(conversation_id, backend, caller)
    admitted = await admit_conversation(body, backend, caller)
    changing = backend.store.conversations.change(
        conversation_id, admitted.body, dialect_texts=dialect_texts, agent_by=admitted.agent_by
    )
    return await within_deadline(changing)


async def read_dialect_text(backend: Backend, conversation_id: str, dialect: str) -> DialectText:
    """Return the text that a dialect has stored with a conversation.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    return await within_deadline(backend.store.conversations.dialect_text(conversation_id, dialect))


def conversation_of(backend: Backend, number: UUID) -> str:
    """Return the id of the conversation of the caller's tenant that others know by ``number``, whether there is one or
    not."""
    return backend.store.runs.conversation_of_number(number)


def chosen_id(backend: Backend, text: str, beside: str | None = None) -> str:
    """Return the id that a client has chosen, which may be a UUID, for a conversation of its tenant, or of that of the
    one ``beside`` it, if that is within its reach.

    Raises:
        Refused: it is none.
    """
    tenant = tenant_of(beside) if beside is not None and is_reached(beside) else None
    try:
        number = uuid_of(text) if is_id("conv", text) else UUID(text)
    except ValueError:
        number = None
    conversation_id = None if number is None else backend.store.runs.conversation_of_number(number, tenant)
    if conversation_id is None or (is_id("conv", text) and text != conversation_id):
        raise Refused.of_faults(
            [FieldError("/id", "validation_error", "must be a UUID, or an id that this server made")]
        )
    return conversation_id


def check_dialect_texts(dialect_texts: DialectTexts | None) -> None:
    """Check the texts of dialects.

    Raises:
        Refused: one is too long.
    """
    if any(len((text or "").encode()) > limit_of("kept") for text in (dialect_texts or {}).values()):
        count_exceeded("kept")
        raise Refused("payload_too_large", f"A conversation keeps {limit_of('kept')} bytes of this at most.")


async def standing_agent(backend: Backend, conversation_id: str) -> StandingAgent:
    """Return the agent of a conversation, and who wrote it.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StoreUnavailable: the store took too long.
    """
    return await within_deadline(backend.store.runs.agent_of(conversation_id))


async def read_conversation(backend: Backend, conversation_id: str) -> Conversation:
    """Return the conversation as it is now.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    return await within_deadline(backend.store.runs.conversation(conversation_id))


async def delete_conversation(backend: Backend, conversation_id: str, caller: Caller) -> None:
    """Delete a conversation none of whose runs is active or queued.

    Raises:
        Refused: the caller's key is for other agents.
        UnknownConversation, StateConflict: there is no such conversation, or it is busy.
        NotDurable, StoreUnavailable: it may be there still.
    """
    # Of one that is half deleted only the rest goes.
    with suppress(UnknownConversation):
        await check_heard(conversation_id, backend, caller)
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
    """Return messages and tool results behind a position, in the order in which the model sees them; with
    ``newest_first`` the other way, from that position or the end back.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    pages = backend.store.runs.pages(conversation_id, after=after, newest_first=newest_first)
    return await within_deadline(_page(pages, after, limit, include))


async def has_messages(backend: Backend, conversation_id: str, messages: int) -> bool:
    """Tell whether models are sent at least so many messages, word for word, from among the newest entries of the log:
    messages that a summary stands for do not count.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    pages = backend.store.runs.pages(conversation_id, newest_first=True)
    return await within_deadline(_has(pages, messages))


async def _has(entries: LogPages, messages: int) -> bool:
    """Tell whether ``entries``, which come newest first, have so many messages."""
    looked, count, through = 0, 0, 0
    async with aclosing(entries) as pages:
        async for page in pages:
            for entry in page:
                if entry.withdrawn:
                    continue
                if entry.type == EventKind.CONVERSATION_CONDENSED:
                    through = max(through, entry.data["through"])
                count += entry.type in MESSAGES and entry.position > through
            looked += len(page)
            if count >= messages or looked >= LOOKED_THROUGH:
                break
    return count >= messages


async def _page(entries: LogPages, after: int, limit: int, include: IncludedInMessages) -> MessagePage:
    messages: list[ConversationMessage] = []
    position, looked, size = after, 0, 0
    async with aclosing(entries) as pages:
        async for page in pages:
            for entry in page:
                if entry.type in MESSAGES:
                    if len(messages) == limit or _is_full(size):
                        return MessagePage(data=messages, next_after=position, has_more=True)
                    messages.append(_message(entry, include))
                    shown = entry.opaque if include == "opaque" else None
                    size += _size(messages[-1]) + (len(shown.fields) if shown else 0)
                position = entry.position
            looked += len(page)
            if looked >= LOOKED_THROUGH:
                return MessagePage(data=messages, next_after=position, has_more=True)
    return MessagePage(data=messages, next_after=position, has_more=False)


def _is_full(size: int) -> bool:
    """Tell whether a page that has so many bytes already ends here."""
    if size <= limit_of("answer_bytes"):
        return False
    count_exceeded("answer_bytes")
    return True


def _size(message: Message) -> int:
    """Return the number of a message's characters, without its short fields."""
    return len(str(message.content)) + sum(len(call.arguments) for call in message.tool_calls)


def _message(entry: LogEntry, include: IncludedInMessages) -> ConversationMessage:
    data, opaque = entry.data, entry.opaque
    message = data["message"]
    if opaque and include == "reasoning" and (thoughts := opaque.reasoning()):
        message = {**message, "content": _behind(thoughts, message.get("content", ""))}
    return ConversationMessage(
        position=entry.position,
        run_id=entry.run_id or None,
        at=entry.at,
        nudge=data.get("nudge", False),
        steer=data.get("steer", False),
        withdrawn=entry.withdrawn,
        opaque=opaque.shown() if opaque and include == "opaque" else None,
        **message,
    )


def _behind(thoughts: str, content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the content of a message as parts, behind the model's reasoning."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    return [{"type": "reasoning", "text": thoughts}, *content]
