"""Conversations: begin, read, list their messages, delete."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller, IncludedInMessages, MessagePage
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.conversation import Conversation, ConversationPatch, NewConversation

from ..http.answers import answer
from ..http.audit import detail
from ..http.queries import FARTHEST, Number, Query
from .dialect import NATIVE, ConversationId
from .links import location_of


class MessagesQuery(Query):
    """The place to start from, and the number of messages."""

    after: Number = Field(default=0, ge=0, le=FARTHEST, description="Only those behind this `position`, in the order.")
    order: Literal["position", "-position"] = Field(
        default="position", description="With a minus the newest first, from `after` or the end back."
    )
    limit: Number = Field(default=100, ge=1, le=500, description="Messages on a page.")
    include: IncludedInMessages = Field(
        default=None,
        description="`reasoning`: with what the model thought, as a part of its message. "
        "`opaque`: with what the provider of a message wants back unchanged.",
    )


_EMPTY: Final = NewConversation.model_construct()


@NATIVE.route(
    "POST",
    "/v1/conversations",
    scope="runs:submit",
    tag="conversations",
    summary="Begin a conversation",
    examples={"with an agent": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}}},
    answers={
        200: ("There is one of that id already: this one, as it is.", Conversation),
        201: ("Begun. `Location` is the conversation.", Conversation),
    },
    problems=(*AGENT_PROBLEMS, "conversation_busy", "tenant_erased", "store_nearly_full", "not_durable"),
)
async def create_conversation(backend: Backend, caller: Caller, body: NewConversation = _EMPTY) -> Response:
    """An empty conversation. Not needed for a first run: that begins one of its own. With an `id` of your own, the same
    request may be sent again."""
    made, there = await operations.create_conversation(backend, body, caller)
    return answer(made, 200 if there else 201, location_of(f"/v1/conversations/{made.id}"))


@NATIVE.route(
    "GET",
    "/v1/conversations/{conversation_id}",
    scope="runs:read",
    tag="conversations",
    summary="Read a conversation",
    answers={200: ("The conversation as it is now.", Conversation)},
    problems=("conversation_not_found",),
)
async def read_conversation(backend: Backend, conversation_id: ConversationId) -> Response:
    """Its agent, its runs in order, and how the last one ended."""
    return answer(await operations.read_conversation(backend, conversation_id))


@NATIVE.route(
    "PATCH",
    "/v1/conversations/{conversation_id}",
    scope="runs:act",
    tag="conversations",
    summary="Change a conversation",
    examples={
        "a title": {"title": "Invoices of March"},
        "if no other client has changed it": {"metadata": {"customer": "c-17"}, "revision": 3},
        "another agent from the next run on": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}},
    },
    answers={200: ("The conversation as it is now.", Conversation)},
    problems=(*AGENT_PROBLEMS, "conversation_not_found", "conversation_revised", "store_nearly_full", "not_durable"),
)
async def change_conversation(
    backend: Backend, caller: Caller, conversation_id: ConversationId, body: ConversationPatch
) -> Response:
    """Each field of the body takes the place of the old value; fields that are left out stay."""
    detail(changed=sorted(body.model_fields_set))
    return answer(await operations.change_conversation(backend, conversation_id, body, caller))


@NATIVE.route(
    "GET",
    "/v1/conversations/{conversation_id}/messages",
    scope="runs:read",
    tag="conversations",
    summary="Read what was said",
    answers={200: ("A page of messages.", MessagePage)},
    problems=("conversation_not_found",),
)
async def messages(backend: Backend, conversation_id: ConversationId, query: MessagesQuery) -> Response:
    """Messages and tool results, in the order in which the model sees them, or the other way; those that it does not
    see any more are marked."""
    page = operations.read_messages(
        backend,
        conversation_id,
        after=query.after,
        limit=query.limit,
        include=query.include,
        newest_first=query.order == "-position",
    )
    return answer(await page)


@NATIVE.route(
    "DELETE",
    "/v1/conversations/{conversation_id}",
    scope="runs:act",
    tag="conversations",
    summary="Delete a conversation",
    answers={204: ("It is gone, with everything that was said in it and all its runs.", None)},
    problems=("conversation_not_found", "conversation_busy", "not_durable", "agent_not_allowed"),
)
async def delete_conversation(backend: Backend, caller: Caller, conversation_id: ConversationId) -> Response:
    """Forget a conversation none of whose runs is going on or queued."""
    await operations.delete_conversation(backend, conversation_id, caller)
    return Response(status_code=204)
