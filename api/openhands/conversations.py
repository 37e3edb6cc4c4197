"""Conversations: begin, look at, change, delete."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from palaver.errors import NoRoom, NotDurable, StateConflict, UnknownConversation
from palaver.schemas.conversation import ConversationPatch
from palaver.vocabulary.ids import uuid_of

from .. import operations
from ..operations import Backend, Caller
from ..operations.admission import AGENT_PROBLEMS
from ..queries import AnyQuery
from .answers import ConversationInfo, ConversationList, FinalResponse, OpenHandsSuccess, done, plain
from .beginning import StartConversation
from .content import user_message
from .dialect import OPENHANDS, ConversationUuid, number_of
from .fields import Known, refusing
from .generations import Generation
from .keeping import keep, with_its_agent
from .looking import NAME, look
from .running import begin_unless_running

_MOST: Final = 99
"""Conversations that one request may name."""
_LETTING_GO: Final = 5.0
"""Seconds that workers may take to let go of a run that is cancelled: a call of a model is closed at once."""


class ConversationChange(Known):
    """What of a conversation is to be another."""

    title: str | None = None
    tags: dict[str, str] | None = None


def _split(text: object) -> object:
    return tuple(text.split(",")) if isinstance(text, str) else text


class ManyQuery(AnyQuery):
    """Which conversations."""

    ids: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(max_length=_MOST, description="UUIDs.")


@OPENHANDS.route(
    "POST",
    "/openhands/api/conversations",
    tag="openhands",
    summary="Begin a conversation",
    answers={201: ("Begun.", ConversationInfo), 200: ("It was there, and is as it was.", ConversationInfo)},
    problems=(*AGENT_PROBLEMS, "conversation_busy", "store_nearly_full", "not_durable"),
)
async def start_conversation(backend: Backend, caller: Caller, wanted: StartConversation) -> Response:
    """Begin a conversation with an agent, under the id that the client has chosen or one of ours."""
    first = wanted.initial_message
    said = None if first is None else user_message(first.content)
    begun, there = await operations.create_conversation(
        backend, wanted.conversation(), kept={NAME: wanted.kept().text()}
    )
    number = uuid_of(begun.id)
    if first is not None and said is not None:
        # A request that is made again finishes what the one before has left undone.
        if not begun.entries:
            await operations.append(backend, begun.id, [said], caller, key=f"first message of {number}")
        seen = await look(backend, number)
        if first.run and seen.untouched:
            await begin_unless_running(backend, caller, seen)
    return plain((await look(backend, number)).info(), 200 if there else 201)


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations",
    tag="openhands",
    summary="Look at several conversations",
    answers={200: ("Each of them, null for one that is not there.", ConversationList)},
)
async def several_conversations(backend: Backend, query: ManyQuery) -> Response:
    """Conversations, in the order of their ids in the request."""
    found: list[dict[str, Any] | None] = []
    for each in query.ids:
        info = None
        with suppress(UnknownConversation):
            info = (await look(backend, number_of(each))).info()
        found.append(info)
    return plain(found)


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations/{conversation}",
    tag="openhands",
    summary="Look at a conversation",
    answers={200: ("As it is now.", ConversationInfo)},
    problems=("conversation_not_found",),
)
async def conversation_info(backend: Backend, conversation: ConversationUuid) -> Response:
    """Its state, its agent without keys, and what was used."""
    seen = await look(backend, conversation)
    if seen.kept.generation is Generation.OLDER:
        # Its clients take the end of a run from here, and then look at what their sockets have brought.
        await operations.once_told(backend, seen.id, seen.conversation)
    return plain(seen.info())


@OPENHANDS.route(
    "PATCH",
    "/openhands/api/conversations/{conversation}",
    tag="openhands",
    summary="Change the title or the tags",
    answers={200: ("Changed.", OpenHandsSuccess)},
    problems=("conversation_not_found", "store_nearly_full", "not_durable"),
)
async def change_conversation(backend: Backend, conversation: ConversationUuid, wanted: ConversationChange) -> Response:
    """What is given takes the place of what there was."""
    given: dict[str, Any] = {}
    if "title" in wanted.model_fields_set:
        given["title"] = wanted.title
    if "tags" in wanted.model_fields_set:
        given["metadata"] = wanted.tags or {}
    id = operations.conversation_of(backend, conversation)
    with refusing(named={"metadata": "tags"}):
        patch = ConversationPatch(**given)
    await operations.change_conversation(backend, id, patch)
    return done()


@OPENHANDS.route(
    "DELETE",
    "/openhands/api/conversations/{conversation}",
    tag="openhands",
    summary="Delete a conversation",
    answers={200: ("It is gone.", OpenHandsSuccess)},
    problems=("conversation_not_found", "conversation_busy", "too_many_watchers", "not_durable"),
)
async def delete_conversation(backend: Backend, caller: Caller, conversation: ConversationUuid) -> Response:
    """Forget it. A run that is going on is cancelled first, and waited for; 409: a worker has not let go of it."""
    id = operations.conversation_of(backend, conversation)
    await _say_that_it_goes(backend, conversation)
    await operations.clear_conversation(backend, id, caller, seconds=_LETTING_GO)
    return done()


async def _say_that_it_goes(backend: Backend, conversation: UUID) -> None:
    """Before what goes on in it is cancelled: who waits for that is to hear that the conversation is gone, and not that
    it has stopped. Only a word to them: nothing that hinders it keeps a conversation from being deleted."""
    with suppress(UnknownConversation, StateConflict, NoRoom, NotDurable):
        seen = await look(backend, conversation)
        if seen.conversation.active_run or seen.conversation.queued_runs:
            await keep(backend, conversation, with_its_agent, deleted_with=seen.newest_run)


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations/{conversation}/agent_final_response",
    tag="openhands",
    summary="Read what the agent answered",
    answers={200: ("Empty if it has not answered.", FinalResponse)},
    problems=("conversation_not_found",),
)
async def agent_final_response(backend: Backend, conversation: ConversationUuid) -> Response:
    """The text with which it answered last."""
    return plain({"response": (await look(backend, conversation)).answer})
