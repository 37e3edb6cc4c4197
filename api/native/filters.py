"""Filters for runs: those of a list, and of an operation on many runs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Final, Self, cast

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator

from palaver.errors import FACTS, ErrorClass, Failure
from palaver.operations import RunFilter
from palaver.schemas.fields import DataModel, Metadata
from palaver.steps.retry import stop_reason
from palaver.vocabulary.ids import CONVERSATION_ID, RUN_ID, is_id
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.names import did_you_mean

from ..http.queries import moment


def _statuses(value: object) -> object:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list):
        return value
    if not names:
        raise ValueError("must name a status, or be left out")
    if len(names) > limit_of("filter_status"):
        count_exceeded("filter_status")
        raise ValueError(f"must name at most {limit_of('filter_status')} statuses")
    for name in names:
        if not isinstance(name, str) or name not in set(RunStatus):
            hint = did_you_mean(str(name), RunStatus) or f"; there are: {', '.join(RunStatus)}"
            raise ValueError(f"must be statuses, comma separated{hint}")
    return tuple(RunStatus(name) for name in names)


def names_of(there_are: Sequence[str], what: str) -> Callable[[object], object]:
    """Reads names, comma separated in a URL, of which ``there_are`` these; ``what`` says what they are."""

    def read(value: object) -> object:
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list | tuple):
            return value
        if len(names) > len(there_are):
            raise ValueError(f"must be {what}, of which there are {len(there_are)}")
        for name in names:
            if name not in there_are:
                hint = did_you_mean(str(name), there_are) or f"; there are: {', '.join(there_are)}"
                raise ValueError(f"must be {what}, comma separated{hint}")
        return tuple(dict.fromkeys(names))

    return read


def _moment(value: object) -> object:
    if not isinstance(value, str):
        return value
    parsed = moment(value)
    if parsed.tzinfo is None:
        raise ValueError("needs a time zone, such as a Z at its end")
    return parsed


def _conversation_id(text: str) -> str:
    if not is_id("conv", text):
        raise ValueError(
            "must be the id of a conversation: conv_, 28 letters and digits, and a tenant's tag among them"
        )
    return text


def _run_id(text: str) -> str:
    if not is_id("run", text):
        raise ValueError("must be the id of a run: run_, 28 letters and digits, and a tenant's tag among them")
    return text


def _entries(written: object) -> object:
    """``key=value,other=value`` of a URL as an object; what a body has is one, and a URL may have one as JSON."""
    if not isinstance(written, str):
        return written
    if written.startswith("{"):
        try:
            return orjson.loads(written)
        except orjson.JSONDecodeError:
            raise ValueError("must be key=value, comma separated, or a JSON object") from None
    pairs = [pair.partition("=") for pair in written.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise ValueError("must be key=value, comma separated, or a JSON object")
    return {name: value for name, _, value in pairs}


def _flag(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in ("true", "false"):
        raise ValueError("must be true or false")
    return value == "true"


Moment = Annotated[datetime, BeforeValidator(_moment)]
ConversationId = Annotated[
    str, AfterValidator(_conversation_id), WithJsonSchema({"type": "string", "pattern": CONVERSATION_ID})
]

ParentId = Annotated[str, AfterValidator(_run_id), WithJsonSchema({"type": "string", "pattern": RUN_ID})]


def _failing(error_class: ErrorClass) -> ErrorClass:
    reason = stop_reason(Failure.of(error_class))
    if reason.status is not RunStatus.FAILED:
        raise ValueError(f"no run fails with {error_class}: ask for stop_reason={reason}")
    if FACTS[error_class].recoverable:
        raise ValueError(f"no run fails with {error_class}, the model is told of it: stop_reason says why a run ended")
    return error_class


Name = Annotated[str, Field(min_length=1, max_length=64)]
SubmitterName = Annotated[str, Field(min_length=1, max_length=260)]
"""The name of a key, ``key/subject``, or the subject of an issuer with ``oidc:`` before it."""
PAIRS: Final = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[^=,{][^=,]{0,63}=[^,]{0,512}$"},
    "maxItems": 32,
}
"""`key=value` in a URL."""
Entries = Annotated[Metadata, BeforeValidator(_entries)]


def _check_order(query: BaseModel, what: str) -> None:
    after, before = getattr(query, f"{what}_after"), getattr(query, f"{what}_before")
    if after and before and after >= before:
        raise ValueError(f"{what}_after must be before {what}_before")


class CreatedBetween(DataModel):
    """Runs that were submitted between two times."""

    created_after: Moment | None = Field(default=None, description="Only runs submitted after this time.")
    created_before: Moment | None = Field(default=None, description="Only runs submitted before this time.")

    @model_validator(mode="after")
    def _created_fits(self) -> Self:
        _check_order(self, "created")
        return self


class Filters(CreatedBetween):
    """Runs that all of these admit."""

    status: Annotated[tuple[RunStatus, ...], BeforeValidator(_statuses)] = Field(
        default=(),
        description="Only these statuses: several parameters, or commas between them.",
        json_schema_extra={"minItems": 1, "maxItems": limit_of("filter_status")},
    )
    stop_reason: StopReason | None = Field(default=None, description="Only runs that ended for this reason.")
    conversation_id: ConversationId | None = Field(default=None, description="Only runs of this conversation.")
    parent: ParentId | None = Field(default=None, description="Only runs that calls of this run began.")
    submitted_by: SubmitterName | None = Field(
        default=None, description="Only runs that the API key of this name submitted, or `key/subject`."
    )
    agent: Name | None = Field(default=None, description="Only runs of agents with this name, or `name@version`.")
    tag: Name | None = Field(default=None, description="Only runs with this tag.")
    metadata: Entries = Field(default={}, description="Only runs whose metadata have all of these entries.")
    provider: Name | None = Field(default=None, description="Only runs that ask this provider, or asked it last.")
    model: str | None = Field(
        default=None, min_length=1, max_length=265, description="Only runs that ask this model, or asked it last."
    )
    tool: Name | None = Field(default=None, description="Only runs of agents that may use this tool.")
    error_class: Annotated[ErrorClass, AfterValidator(_failing)] | None = Field(
        default=None, description="Only runs that failed with this class."
    )
    error_code: str | None = Field(
        default=None, min_length=1, max_length=200, description="Only runs that failed with this code."
    )
    retried: Annotated[bool, BeforeValidator(_flag)] | None = Field(
        default=None, description="Only runs that another one goes on with (`true`), or none (`false`)."
    )
    ended_after: Moment | None = Field(default=None, description="Only runs that ended after this time.")
    ended_before: Moment | None = Field(default=None, description="Only runs that ended before this time.")

    @model_validator(mode="after")
    def _ended_fits(self) -> Self:
        _check_order(self, "ended")
        return self

    def as_filter(self) -> RunFilter:
        """Return the filter for the store."""
        fields = {name: getattr(self, name) for name in RunFilter.__annotations__}
        return cast(RunFilter, {name: value for name, value in fields.items() if value not in (None, (), {})})
