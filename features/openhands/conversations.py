"""Conversations: list, look at, change, delete."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from api.http.queries import AnyQuery, Number
from api.kit.lenient import LenientModel, refusing
from palaver import operations
from palaver.errors import NoRoom, NotDurable, Refused, StateConflict, UnknownConversation
from palaver.operations import Backend, Caller
from palaver.schemas.conversation import ConversationFilter, ConversationOrder, ConversationPatch
from palaver.vocabulary.ids import uuid_of
from palaver.vocabulary.limits import limit_of

from .dialect import OPENHANDS, UUID_PATTERN, ConversationUuid, number_of
from .followers import caught_up
from .snapshot import load_snapshot, save_state, with_its_agent
from .state import Generation
from .tables import FOUND_BY, ExecutionStatus
from .wire import (
    ConversationInfo,
    ConversationList,
    ConversationSearchPage,
    Count,
    FinalResponse,
    OpenHandsSuccess,
    done,
    plain,
)

_ORDERS: Final[Mapping[str, ConversationOrder]] = MappingProxyType(
    {"CREATED_AT": "created", "CREATED_AT_DESC": "-created", "UPDATED_AT": "updated", "UPDATED_AT_DESC": "-updated"}
)
_KnownStatus = Literal["idle", "running", "paused", "waiting_for_confirmation", "finished", "error", "stuck"]


class ConversationCounting(AnyQuery):
    """A filter of conversations."""

    status: _KnownStatus | None = Field(
        default=None,
        description="`stuck` and `error` find both where a run has failed, `idle` also what was paused while idle.",
    )

    def admitted(self) -> ConversationFilter:
        """Return the filter in our words."""
        return {} if self.status is None else {"status": FOUND_BY[ExecutionStatus(self.status)]}


class ConversationSearch(ConversationCounting):
    """A filter of conversations, and a page of them."""

    page_id: str | None = Field(default=None, description="`next_page_id` of the page before.")
    limit: Number = Field(default=100, ge=1, le=100, description="Conversations on a page.")
    sort_order: Literal["CREATED_AT", "CREATED_AT_DESC", "UPDATED_AT", "UPDATED_AT_DESC"] = "CREATED_AT_DESC"


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations/search",
    scope="runs:read",
    tag="openhands",
    summary="Search conversations",
    answers={200: ("A page.", ConversationSearchPage)},
)
async def search_conversations(backend: Backend, query: ConversationSearch) -> Response:
    """All conversations, whichever dialect they were begun through. A page that no list has named is the first one."""
    try:
        page = await _listed(backend, query, query.page_id)
    except Refused as refused:
        if refused.code != "invalid_cursor":
            raise
        page = await _listed(backend, query, None)
    items: list[dict[str, Any]] = []
    for conversation in page.conversations:
        with suppress(UnknownConversation):
            items.append((await load_snapshot(backend, uuid_of(conversation.id))).info())
    return plain({"items": items, "next_page_id": page.next_cursor})


async def _listed(backend: Backend, query: ConversationSearch, cursor: str | None) -> operations.ListedConversations:
    order = _ORDERS[query.sort_order]
    return await operations.list_conversations(backend, query.admitted(), limit=query.limit, cursor=cursor, order=order)


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations/count",
    scope="runs:read",
    tag="openhands",
    summary="Count conversations",
    answers={200: ("How many there are.", Count)},
)
async def count_conversations(backend: Backend, query: ConversationCounting) -> Response:
    """A number, of those that may be looked at in one request."""
    return plain((await operations.count_conversations(backend, query.admitted())).count)


_MOST: Final = 99
"""Conversations that one request may name."""
_LETTING_GO: Final = 5.0
"""Seconds that workers may take to let go of a run that is cancelled: a call of a model is closed at once."""


class ConversationChange(LenientModel):
    """New values for fields of a conversation."""

    title: str | None = None
    tags: dict[str, str] | None = None


_Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid", "pattern": UUID_PATTERN})]


def _split(text: object) -> object:
    return tuple(text.split(",")) if isinstance(text, str) else text


class ManyQuery(AnyQuery):
    """Conversations by their ids."""

    ids: Annotated[tuple[_Uuid, ...], BeforeValidator(_split)] = Field(
        max_length=_MOST,
        description="UUIDs; commas between them.",
        json_schema_extra={"maxItems": limit_of("parameters")},
    )


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations",
    scope="runs:read",
    tag="openhands",
    summary="Look at several conversations",
    answers={200: ("Each of them, null for one that is not there.", ConversationList)},
)
async def several_conversations(backend: Backend, query: ManyQuery) -> Response:
    """Conversations, in the order of their ids in the request."""
    infos: list[dict[str, Any] | None] = []
    for id in query.ids:
        info = None
        with suppress(UnknownConversation):
            info = (await load_snapshot(backend, number_of(id))).info()
        infos.append(info)
    return plain(infos)


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations/{conversation}",
    scope="runs:read",
    tag="openhands",
    summary="Look at a conversation",
    answers={200: ("As it is now.", ConversationInfo)},
    problems=("conversation_not_found",),
)
async def conversation_info(backend: Backend, conversation: ConversationUuid) -> Response:
    """Its state, its agent without keys, and what was used."""
    snapshot = await load_snapshot(backend, conversation)
    if snapshot.state.generation is Generation.OLDER:
        # Its clients take the end of a run from here, and then look at what their sockets have brought.
        await caught_up(backend, snapshot.id, snapshot.conversation)
    return plain(snapshot.info())


@OPENHANDS.route(
    "PATCH",
    "/openhands/api/conversations/{conversation}",
    scope="runs:act",
    tag="openhands",
    summary="Change the title or the tags",
    answers={200: ("Changed.", OpenHandsSuccess)},
    problems=("conversation_not_found", "store_nearly_full", "not_durable"),
)
async def change_conversation(
    backend: Backend, caller: Caller, conversation: ConversationUuid, body: ConversationChange
) -> Response:
    """Replace the fields that the body has."""
    fields: dict[str, Any] = {}
    if "title" in body.model_fields_set:
        fields["title"] = body.title
    if "tags" in body.model_fields_set:
        fields["metadata"] = body.tags or {}
    id = operations.conversation_of(backend, conversation)
    with refusing(named={"metadata": "tags"}):
        patch = ConversationPatch(**fields)
    await operations.change_conversation(backend, id, patch, caller)
    return done()


@OPENHANDS.route(
    "DELETE",
    "/openhands/api/conversations/{conversation}",
    scope="runs:act",
    tag="openhands",
    summary="Delete a conversation",
    answers={200: ("It is gone.", OpenHandsSuccess)},
    problems=("conversation_not_found", "conversation_busy", "too_many_watchers", "not_durable", "agent_not_allowed"),
)
async def delete_conversation(backend: Backend, caller: Caller, conversation: ConversationUuid) -> Response:
    """Forget it. A run that is going on is cancelled first, and waited for; 409: a worker has not let go of it."""
    id = operations.conversation_of(backend, conversation)
    await _say_that_it_goes(backend, caller, conversation)
    await operations.clear_conversation(backend, id, caller, seconds=_LETTING_GO)
    return done()


async def _say_that_it_goes(backend: Backend, caller: Caller, conversation: UUID) -> None:
    """Say so before the unfinished runs are cancelled: clients that wait for them are to hear that the conversation is
    gone, and not that it has stopped. This is only a courtesy: if it fails, the conversation is deleted all the
    same."""
    with suppress(UnknownConversation, StateConflict, NoRoom, NotDurable):
        about = (await load_snapshot(backend, conversation)).conversation
        if about.unfinished_runs:
            await save_state(backend, caller, conversation, with_its_agent, deleted_with=about.newest_run)


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations/{conversation}/agent_final_response",
    scope="runs:read",
    tag="openhands",
    summary="Read what the agent answered",
    answers={200: ("Empty if it has not answered.", FinalResponse)},
    problems=("conversation_not_found",),
)
async def agent_final_response(backend: Backend, conversation: ConversationUuid) -> Response:
    """The text with which it answered last."""
    return plain({"response": (await load_snapshot(backend, conversation)).answer})
