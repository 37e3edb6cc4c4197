"""Conversations: begin, read, what was said, delete."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Final, Literal

from pydantic import BaseModel

from palaver.conversation_message import ConversationMessage
from palaver.events import MESSAGES
from palaver.limits import beyond, most
from palaver.models import AgentSpec, Conversation, Message
from palaver.store.events import LogEntry
from palaver.store.runs import Runs

from .admission import admit_agent
from .backend import Backend, within_deadline

_LOOKED_THROUGH: Final = 2000
"""Log entries that one page looks through, about: status changes lie between messages."""


IncludedInMessages = Literal["reasoning", "opaque"] | None
"""What of a message is shown only on request: what the model thought, or all that its provider wants back unchanged."""


class MessagePage(BaseModel):
    """A page of messages, in order."""

    data: list[ConversationMessage]
    next_after: int
    """The ``after`` of the next page."""
    has_more: bool


async def create_conversation(backend: Backend, agent: AgentSpec | None) -> Conversation:
    """An empty conversation.

    Raises:
        Refused: everything that is wrong with the agent.
        NoRoom, NotDurable, StoreUnavailable: it was not begun, or not safely.
    """
    admitted = await admit_agent(agent, backend)
    return await within_deadline(backend.store.runs.create_conversation(admitted))


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
    backend: Backend, conversation_id: str, *, after: int, limit: int, include: IncludedInMessages = None
) -> MessagePage:
    """Messages and tool results behind a position, in the order in which the model sees them.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    return await within_deadline(_page(backend.store.runs, conversation_id, after, limit, include))


async def _page(runs: Runs, conversation_id: str, after: int, limit: int, include: IncludedInMessages) -> MessagePage:
    found: list[ConversationMessage] = []
    position, looked, size = after, 0, 0
    async with aclosing(runs.pages(conversation_id, after=position)) as pages:
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
            if looked >= _LOOKED_THROUGH:
                return MessagePage(data=found, next_after=position, has_more=True)
    return MessagePage(data=found, next_after=position, has_more=False)


def _is_full(size: int) -> bool:
    """Whether a page that has so many bytes already ends here."""
    if size <= most("answer_bytes"):
        return False
    beyond("answer_bytes")
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
