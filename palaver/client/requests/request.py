"""A request of the SDK, and what several of them are made of."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from palaver.schemas.models import Budget, Message

PAGE: Final = 100
"""Runs of one page of a list: the API needs a few seconds for them at most."""
BULK_PAGE: Final = 500
"""The same of an action on many."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, relative to the API's address."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """JSON; None for no body."""
    repeatable: bool = True
    """True if sending it twice does no more than sending it once."""
    run_id: str | None = None
    """The run that it is about."""


def parameter(value: Any) -> str:
    """A filter's value in a URL."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return json.dumps(value)
        case list():
            return ",".join(value)
        case _:
            return str(value)


def expecting(version: int | None) -> dict[str, str]:
    """The header that asks for that version of an agent, 0 for none."""
    if version is None:
        return {}
    return {"If-Match": f'"{version}"'} if version else {"If-None-Match": "*"}


def page_of(limit: int, cursor: str | None) -> dict[str, str]:
    """The page of a list: the first one without a cursor."""
    return {"limit": str(limit), **({"cursor": cursor} if cursor else {})}


def without_none(body: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the entries that are None."""
    return {name: value for name, value in body.items() if value is not None}


def budget_object(budget: Budget | Mapping[str, float] | None) -> dict[str, Any] | None:
    """A budget as JSON; None for none."""
    return budget.model_dump(exclude_none=True) if isinstance(budget, Budget) else dict(budget or {}) or None


def moment(name: str, when: datetime | None) -> str | None:
    """A time as JSON. Raises ValueError for one without a time zone."""
    if when is not None and when.tzinfo is None:
        raise ValueError(f"{name} needs a time zone: datetime.now(UTC), for instance")
    return None if when is None else when.isoformat()


def idempotency(idempotency_key: str | None) -> dict[str, str]:
    """The key that lets a request be sent again: this one, or a fresh one."""
    return {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}


def path_of(*parts: str) -> str:
    """A route's path. Raises ValueError for an id that is none."""
    if "" in parts or "." in parts or ".." in parts:
        raise ValueError("an id is empty or not an id")
    return "/".join(("/v1", *(quote(part, safe="") for part in parts)))


def as_message(message: Message | Mapping[str, Any]) -> Any:
    """A message to send. One that was read from a conversation goes without its place there."""
    if not isinstance(message, Message):
        return dict(message)
    return message.model_dump(mode="json", exclude_unset=True, include={*Message.model_fields})
