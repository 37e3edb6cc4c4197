"""Conversations: begin, read, what was said, delete."""

from __future__ import annotations

from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from api.agents import AGENT_PROBLEMS
from api.answers import answer, is_full
from api.backend import backend, prompt
from api.bodies import read_optional_body
from api.door import admit_agent
from api.headers import JSON, accepted
from api.native.links import conversation_path
from api.openapi import operation
from api.queries import FARTHEST, Number, Query, read_query
from palaver.events import MESSAGES
from palaver.fields import Strict
from palaver.models import AgentSpec, Conversation, Message
from palaver.opaque import Opaque
from palaver.store.events import LogEntry
from palaver.store.runs import Runs

router = APIRouter(tags=["conversations"])

_CONVERSATION: Final = {"conversation_id": "The conversation's id."}
_LOOKED_THROUGH: Final = 2000
"""Log entries that one page looks through, about: status changes lie between messages."""


class NewConversation(Strict):
    """A conversation to begin."""

    agent: AgentSpec | None = None
    """May come with the first run instead."""


class MessagesQuery(Query):
    """Where to start, and how many."""

    after: Number = Field(default=0, ge=0, le=FARTHEST, description="Only messages behind this `position`.")
    limit: Number = Field(default=100, ge=1, le=500, description="Messages on a page.")
    include: Literal["opaque"] | None = Field(
        default=None, description="`opaque`: with what the provider of a message wants back unchanged."
    )


class ConversationMessage(Message):
    """A message, and where it stands in the conversation's log."""

    position: int
    run_id: str
    at: datetime
    nudge: bool = False
    """A user message of Palaver's own: the model was told that it repeats itself."""
    steer: bool = False
    """A user message that came into a run that was going on."""
    withdrawn: bool = False
    """Rolled back with its run: models are not told of it any more."""
    opaque: dict[str, Any] | None = None
    """What its provider wants back unchanged, as `origin` and `fields`; null unless the request says
    `include=opaque`."""


class MessagePage(BaseModel):
    """A page of messages, in order."""

    data: list[ConversationMessage]
    next_after: int
    """The ``after`` of the next page."""
    has_more: bool


@router.post(
    "/v1/conversations",
    summary="Begin a conversation",
    status_code=201,
    openapi_extra=operation(
        body=NewConversation,
        body_required=False,
        examples={"with an agent": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}}},
        answers={201: ("Begun. `Location` is the conversation.", Conversation)},
        problems=(*AGENT_PROBLEMS, "store_nearly_full"),
    ),
)
async def create_conversation(request: Request) -> Response:
    """An empty conversation. Not needed for a first run: that begins one of its own. Without a run it is gone after a
    day."""
    accepted(request, JSON)
    read_query(request, Query)
    wanted = await read_optional_body(request, NewConversation)
    here = backend(request)
    made = await prompt(here.store.runs.create_conversation(admit_agent(wanted.agent, here)))
    return answer(made, 201, {"Location": conversation_path(made.id)})


@router.get(
    "/v1/conversations/{conversation_id}",
    summary="Read a conversation",
    openapi_extra=operation(
        path=_CONVERSATION,
        answers={200: ("The conversation as it is now.", Conversation)},
        problems=("conversation_not_found",),
    ),
)
async def read_conversation(request: Request) -> Response:
    """Its agent, its runs in order, and how the last one ended."""
    accepted(request, JSON)
    read_query(request, Query)
    conversation_id = request.path_params["conversation_id"]
    return answer(await prompt(backend(request).store.runs.conversation(conversation_id)))


@router.get(
    "/v1/conversations/{conversation_id}/messages",
    summary="Read what was said",
    openapi_extra=operation(
        path=_CONVERSATION,
        query=MessagesQuery,
        answers={200: ("A page of messages.", MessagePage)},
        problems=("conversation_not_found",),
    ),
)
async def messages(request: Request) -> Response:
    """Messages and tool results, in the order in which the model sees them; what it is not told any more is marked."""
    accepted(request, JSON)
    query = read_query(request, MessagesQuery)
    conversation_id = request.path_params["conversation_id"]
    return answer(await prompt(_page(backend(request).store.runs, conversation_id, query)))


async def _page(runs: Runs, conversation_id: str, query: MessagesQuery) -> MessagePage:
    found: list[ConversationMessage] = []
    position, looked, size = query.after, 0, 0
    async with aclosing(runs.pages(conversation_id, after=position)) as pages:
        async for page in pages:
            for entry in page:
                if entry.type in MESSAGES:
                    if len(found) == query.limit or is_full(size):
                        return MessagePage(data=found, next_after=position, has_more=True)
                    opaque = entry.opaque if query.include == "opaque" else None
                    found.append(_message(entry, opaque))
                    size += _size(found[-1]) + (len(opaque.fields) if opaque else 0)
                position = entry.position
            looked += len(page)
            if looked >= _LOOKED_THROUGH:
                return MessagePage(data=found, next_after=position, has_more=True)
    return MessagePage(data=found, next_after=position, has_more=False)


def _size(message: Message) -> int:
    """Characters, but for what is short anyway."""
    return len(message.content) + sum(len(call.arguments) for call in message.tool_calls)


def _message(entry: LogEntry, opaque: Opaque | None) -> ConversationMessage:
    data = entry.data
    return ConversationMessage(
        position=entry.position,
        run_id=entry.run_id,
        at=entry.at,
        nudge=data.get("nudge", False),
        steer=data.get("steer", False),
        withdrawn=entry.withdrawn,
        opaque=opaque.shown() if opaque else None,
        **data["message"],
    )


@router.delete(
    "/v1/conversations/{conversation_id}",
    summary="Delete a conversation",
    status_code=204,
    openapi_extra=operation(
        path=_CONVERSATION,
        answers={204: ("It is gone, with everything that was said in it and all its runs.", None)},
        problems=("conversation_not_found", "conversation_busy", "not_durable"),
    ),
)
async def delete_conversation(request: Request) -> Response:
    """Forget a conversation none of whose runs is going on or queued."""
    read_query(request, Query)
    await prompt(backend(request).store.control.delete_conversation(request.path_params["conversation_id"]))
    return Response(status_code=204)
