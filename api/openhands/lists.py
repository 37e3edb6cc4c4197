"""Lists of conversations."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import Field
from starlette.responses import Response

from palaver.errors import Refused, UnknownConversation
from palaver.schemas.conversation import ConversationFilter, ConversationOrder
from palaver.vocabulary.ids import uuid_of
from palaver.vocabulary.lifecycle import RunStatus

from .. import operations
from ..operations import Backend
from ..queries import AnyQuery, Number
from .answers import ConversationsFound, Count, plain
from .dialect import OPENHANDS
from .looking import look
from .statuses import ExecutionStatus

_STATUSES: Final[Mapping[ExecutionStatus, tuple[str, ...]]] = MappingProxyType(
    {
        ExecutionStatus.IDLE: ("idle", RunStatus.CANCELLED),
        ExecutionStatus.RUNNING: (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.CANCELLING),
        ExecutionStatus.PAUSED: (RunStatus.PAUSED,),
        ExecutionStatus.WAITING: (RunStatus.REQUIRES_ACTION,),
        ExecutionStatus.FINISHED: (RunStatus.COMPLETED,),
        ExecutionStatus.ERROR: (RunStatus.FAILED, RunStatus.INCOMPLETE, RunStatus.EXPIRED),
        ExecutionStatus.STUCK: (RunStatus.FAILED,),
    }
)
"""Those of the newest run: one that is stuck has failed."""
_ORDERS: Final[Mapping[str, ConversationOrder]] = MappingProxyType(
    {"CREATED_AT": "created", "CREATED_AT_DESC": "-created", "UPDATED_AT": "updated", "UPDATED_AT_DESC": "-updated"}
)
Known = Literal["idle", "running", "paused", "waiting_for_confirmation", "finished", "error", "stuck"]


class ConversationCounting(AnyQuery):
    """Which conversations."""

    status: Known | None = Field(
        default=None,
        description="`stuck` and `error` find both where a run has failed, `idle` also what was paused while idle.",
    )

    def admitted(self) -> ConversationFilter:
        """The same here."""
        return {} if self.status is None else {"status": _STATUSES[ExecutionStatus(self.status)]}


class ConversationSearch(ConversationCounting):
    """Which conversations, and how many."""

    page_id: str | None = Field(default=None, description="`next_page_id` of the page before.")
    limit: Number = Field(default=100, ge=1, le=100, description="Conversations on a page.")
    sort_order: Literal["CREATED_AT", "CREATED_AT_DESC", "UPDATED_AT", "UPDATED_AT_DESC"] = "CREATED_AT_DESC"


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations/search",
    tag="openhands",
    summary="Search conversations",
    answers={200: ("A page.", ConversationsFound)},
)
async def search_conversations(backend: Backend, query: ConversationSearch) -> Response:
    """All conversations, whichever dialect they were begun through. A page that no list has named is the first one."""
    try:
        found = await _listed(backend, query, query.page_id)
    except Refused as refused:
        if refused.code != "invalid_cursor":
            raise
        found = await _listed(backend, query, None)
    items: list[dict[str, Any]] = []
    for each in found.conversations:
        with suppress(UnknownConversation):
            items.append((await look(backend, uuid_of(each.id))).info())
    return plain({"items": items, "next_page_id": found.next_cursor})


async def _listed(backend: Backend, query: ConversationSearch, cursor: str | None) -> operations.ConversationList:
    order = _ORDERS[query.sort_order]
    return await operations.list_conversations(backend, query.admitted(), limit=query.limit, cursor=cursor, order=order)


@OPENHANDS.route(
    "GET",
    "/openhands/api/conversations/count",
    tag="openhands",
    summary="Count conversations",
    answers={200: ("How many there are.", Count)},
)
async def count_conversations(backend: Backend, query: ConversationCounting) -> Response:
    """A number, of those that may be looked at in one request."""
    return plain((await operations.count_conversations(backend, query.admitted())).count)
