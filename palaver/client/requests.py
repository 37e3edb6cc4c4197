"""What the SDK asks: each route as a `Request`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from palaver.client.flow import Request
from palaver.models import Budget, Message

Until: TypeAlias = Literal["terminal", "action"]
"""How far a run is to come: to its end; or to that, to a pending action, or to a pause."""


def submit_run(
    *,
    input: str | Sequence[Message | Mapping[str, Any]],
    agent: Any,
    conversation_id: str | None,
    on_conflict: str | None,
    start_after: datetime | None,
    start_by: datetime | None,
    deadline: datetime | None,
    budget: Budget | Mapping[str, float] | None,
    metadata: Mapping[str, str] | None,
    tags: Sequence[str],
    idempotency_key: str | None,
    wait: int,
) -> Request:
    """``POST /v1/runs``; repeatable because it always carries an idempotency key.

    Raises:
        ValueError: a time without a time zone.
    """
    body = {
        "agent": agent,
        "input": input if isinstance(input, str) else [_message(message) for message in input],
        "conversation_id": conversation_id,
        "on_conflict": on_conflict,
        "start_after": moment("start_after", start_after),
        "start_by": moment("start_by", start_by),
        "deadline": moment("deadline", deadline),
        "budget": budget_object(budget),
        "metadata": dict(metadata) if metadata else None,
        "tags": list(tags) or None,
    }
    headers = key_header(idempotency_key)
    if wait:
        headers["Prefer"] = f"wait={wait}"
    return Request("POST", "/v1/runs", headers=headers, body=given(body))


def get_run(run_id: str, wait: int = 0, until: Until = "terminal") -> Request:
    """``GET /v1/runs/{id}``, answered once the run has come so far or ``wait`` seconds are over."""
    query = {"wait": str(wait), "until": until} if wait else {}
    return Request("GET", path("runs", run_id), query=query, run_id=run_id)


def run_filter(
    *,
    status: str | Iterable[str] | None,
    conversation_id: str | None,
    tag: str | None,
    agent: str | None,
    error_class: str | None,
    created_after: datetime | None,
    created_before: datetime | None,
) -> dict[str, Any]:
    """Which runs are meant, as JSON.

    Raises:
        ValueError: a time without a time zone, or no status in ``status``.
    """
    statuses = status.split(",") if isinstance(status, str) else status if status is None else list(status)
    if statuses == []:
        raise ValueError("status names none: leave it out to mean every status")
    wanted = {
        "status": statuses,
        "conversation_id": conversation_id,
        "tag": tag,
        "agent": agent,
        "error_class": error_class,
        "created_after": moment("created_after", created_after),
        "created_before": moment("created_before", created_before),
    }
    return given(wanted)


def list_runs(wanted: Mapping[str, Any], limit: int, cursor: str | None) -> Request:
    """``GET /v1/runs``: one page of those that `run_filter` means."""
    query = {name: ",".join(value) if name == "status" else value for name, value in wanted.items()}
    page = {"limit": str(limit), **({"cursor": cursor} if cursor else {})}
    return Request("GET", "/v1/runs", query={**query, **page})


def follow_run(run_id: str, after: int) -> Request:
    """``GET /v1/runs/{id}/events`` from behind sequence number ``after``."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if after:
        headers["Last-Event-ID"] = str(after)
    return Request("GET", path("runs", run_id, "events"), headers=headers, run_id=run_id)


def get_events(run_id: str, after: int) -> Request:
    """``GET /v1/runs/{id}/events``: one page, from behind sequence number ``after``."""
    headers, query = {"Accept": "application/json"}, {"after": str(after), "limit": "500"}
    return Request("GET", path("runs", run_id, "events"), query=query, headers=headers, run_id=run_id)


def create_conversation(agent: Any) -> Request:
    """``POST /v1/conversations``; twice makes two, so it is not repeated blindly."""
    return Request("POST", "/v1/conversations", body=given({"agent": agent}), repeatable=False)


def get_conversation(conversation_id: str) -> Request:
    """``GET /v1/conversations/{id}``."""
    return Request("GET", path("conversations", conversation_id))


def get_messages(conversation_id: str, after: int, limit: int | None = None) -> Request:
    """``GET /v1/conversations/{id}/messages``: one page, from behind the log's position ``after``."""
    query = {"after": str(after)} if after else {}
    if limit is not None:
        query["limit"] = str(limit)
    return Request("GET", path("conversations", conversation_id, "messages"), query=query)


def get_queues() -> Request:
    """``GET /v1/queues``."""
    return Request("GET", "/v1/queues")


def path(*parts: str) -> str:
    """A route's path. Raises ValueError for an id that is none."""
    if "" in parts or "." in parts or ".." in parts:
        raise ValueError("an id is empty or not an id")
    return "/".join(("/v1", *(quote(part, safe="") for part in parts)))


def given(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None."""
    return {name: value for name, value in body.items() if value is not None}


def _message(message: Message | Mapping[str, Any]) -> Any:
    return message.model_dump(mode="json", exclude_unset=True) if isinstance(message, Message) else dict(message)


def budget_object(budget: Budget | Mapping[str, float] | None) -> dict[str, Any] | None:
    """A budget as JSON; None for none."""
    return budget.model_dump(exclude_none=True) if isinstance(budget, Budget) else dict(budget or {}) or None


def moment(name: str, when: datetime | None) -> str | None:
    """A time as JSON. Raises ValueError for one without a time zone."""
    if when is not None and when.tzinfo is None:
        raise ValueError(f"{name} needs a time zone: datetime.now(UTC), for instance")
    return None if when is None else when.isoformat()


def key_header(idempotency_key: str | None) -> dict[str, str]:
    """The key that lets a request be sent again: this one, or a fresh one."""
    return {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
