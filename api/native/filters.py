"""Which runs are meant: the filters of a list, and of what is done to many runs at once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator

from palaver.errors import ErrorClass
from palaver.ids import is_id
from palaver.lifecycle import RunStatus
from palaver.limits import beyond, most

from ..operations import RunFilter
from ..validation import did_you_mean


def _statuses(given: object) -> object:
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list):
        return given
    if not names:
        raise ValueError("must name a status, or be left out")
    if len(names) > most("filter_status"):
        beyond("filter_status")
        raise ValueError(f"must name at most {most('filter_status')} statuses")
    for name in names:
        if not isinstance(name, str) or name not in set(RunStatus):
            hint = did_you_mean(str(name), RunStatus) or f"; there are: {', '.join(RunStatus)}"
            raise ValueError(f"must be statuses, comma separated{hint}")
    return tuple(RunStatus(name) for name in names)


def _moment(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z (in a URL, write + as %2B)") from None
    if found.tzinfo is None:
        raise ValueError("needs a time zone, such as a Z at its end")
    return found


def _conversation_id(given: str) -> str:
    if not is_id("conv", given):
        raise ValueError("must be the id of a conversation: conv_ and 28 letters and digits")
    return given


Moment = Annotated[datetime, BeforeValidator(_moment)]
ConversationId = Annotated[
    str, AfterValidator(_conversation_id), WithJsonSchema({"type": "string", "pattern": "^conv_[0-9a-z]{28}$"})
]


class Filters(BaseModel):
    """Runs that all of these admit."""

    status: Annotated[tuple[RunStatus, ...], BeforeValidator(_statuses)] = Field(
        default=(),
        description="Only these statuses: several parameters, or commas between them.",
        json_schema_extra={"minItems": 1, "maxItems": most("filter_status")},
    )
    conversation_id: ConversationId | None = Field(default=None, description="Only runs of this conversation.")
    agent: str | None = Field(
        default=None, min_length=1, max_length=64, description="Only runs of agents with this name."
    )
    tag: str | None = Field(default=None, min_length=1, max_length=64, description="Only runs with this tag.")
    error_class: ErrorClass | None = Field(default=None, description="Only runs that failed with this class.")
    created_after: Moment | None = Field(default=None, description="Only runs submitted after this time.")
    created_before: Moment | None = Field(default=None, description="Only runs submitted before this time.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.created_after and self.created_before and self.created_after >= self.created_before:
            raise ValueError("created_after must be before created_before")
        return self

    def as_filter(self) -> RunFilter:
        """What the store is asked for."""
        return cast(RunFilter, {name: getattr(self, name) or None for name in RunFilter.__annotations__})
