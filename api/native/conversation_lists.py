"""Lists of conversations."""

from __future__ import annotations

from typing import Annotated, Final, Self, cast

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend
from palaver.schemas.conversation import Conversation, ConversationCount, ConversationFilter, ConversationOrder
from palaver.schemas.fields import DataModel
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import limit_of

from ..http.answers import answer
from ..http.queries import Number, Query
from .answers import answer_list
from .dialect import NATIVE
from .filters import PAIRS, Entries, Moment, Name, names_of

_STATUSES: Final = ("idle", *map(str, RunStatus))


class ConversationPage(DataModel):
    """A page of conversations."""

    data: list[Conversation]
    next_cursor: str | None
    has_more: bool


_Statuses = Annotated[
    tuple[str, ...],
    BeforeValidator(names_of(_STATUSES, "statuses")),
    WithJsonSchema({"type": "array", "items": {"enum": list(_STATUSES)}, "minItems": 1, "maxItems": len(_STATUSES)}),
]


class ConversationFilters(Query):
    """Conversations that all of these admit."""

    title: str | None = Field(
        default=None,
        min_length=1,
        max_length=limit_of("title"),
        description="Only with this in their title; case is one.",
    )
    status: _Statuses = Field(
        default=(),
        description="Only these: that of the active run, else of the last one, else `idle`. Several, or with commas.",
    )
    tag: Name | None = Field(default=None, description="Only with this tag.")
    metadata: Annotated[Entries, WithJsonSchema(PAIRS)] = Field(
        default={}, description="Only with all of these entries: `key=value`, several, or a JSON object."
    )
    created_after: Moment | None = Field(default=None, description="Only begun at this time or later.")
    created_before: Moment | None = Field(default=None, description="Only begun at this time or earlier.")
    updated_after: Moment | None = Field(default=None, description="Only with news at this time or later.")
    updated_before: Moment | None = Field(default=None, description="Only without news after this time.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for what in ("created", "updated"):
            after, before = getattr(self, f"{what}_after"), getattr(self, f"{what}_before")
            if after and before and after > before:
                raise ValueError(f"{what}_after must not be behind {what}_before")
        return self

    def as_filter(self) -> ConversationFilter:
        """Return the filter for the store."""
        fields = {name: getattr(self, name) for name in ConversationFilter.__annotations__}
        return cast(ConversationFilter, {name: value for name, value in fields.items() if value not in (None, (), {})})


class ConversationsQuery(ConversationFilters):
    """The conversations to list, their order, and their number."""

    order: ConversationOrder = Field(
        default="-updated", description="By creation or by the last change; with a minus the newest first."
    )
    limit: Number = Field(default=50, ge=1, le=200, description="Conversations on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before, in the same order.")


@NATIVE.route(
    "GET",
    "/v1/conversations",
    scope="runs:read",
    tag="conversations",
    summary="List conversations",
    answers={200: ("A page; `Link` has the next.", ConversationPage)},
    problems=("invalid_cursor",),
)
async def list_conversations(backend: Backend, query: ConversationsQuery) -> Response:
    """The conversations that all filters admit. A page looks at 10,000 conversations at most, so with filters other
    than those of time it may be short, even empty, although `has_more`. By `updated`, a conversation that changes
    meanwhile has another place."""
    page = await operations.list_conversations(
        backend, query.as_filter(), limit=query.limit, cursor=query.cursor, order=query.order
    )
    listed = (each.model_dump_json().encode() for each in page.conversations)
    return answer_list("conversations", query, listed, page.next_cursor)


@NATIVE.route(
    "GET",
    "/v1/conversations/count",
    scope="runs:read",
    tag="conversations",
    summary="Count conversations",
    answers={200: ("How many there are.", ConversationCount)},
)
async def count_conversations(backend: Backend, query: ConversationFilters) -> Response:
    """Count the conversations that all filters admit, of the newest 100,000."""
    return answer(await operations.count_conversations(backend, query.as_filter()))
