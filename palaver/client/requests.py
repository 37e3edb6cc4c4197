"""What the SDK asks: each route as a `Request`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from palaver.client.flow import Request
from palaver.models import AgentSpec, Budget, Message


def agent_object(
    agent: AgentSpec | Mapping[str, Any] | None,
    model: str | None,
    instructions: str | None,
    tools: Sequence[str],
    max_steps: int | None,
) -> Any:
    """The agent on the wire, from a spec or from the short form; None to use the conversation's own.

    Raises:
        ValueError: both forms at once, or a short form without a model.
    """
    given = {
        "instructions": instructions,
        "tools": list(tools) or None,
        "max_steps": max_steps,
    }
    details = {name: value for name, value in given.items() if value is not None}
    if agent is not None:
        if model is not None or details:
            raise ValueError("give either agent or model, instructions, tools and max_steps, not both")
        return agent.model_dump(mode="json", exclude_unset=True) if isinstance(agent, AgentSpec) else dict(agent)
    if model is None:
        if details:
            raise ValueError(f"{', '.join(details)} given without a model")
        return None
    return {"model": model, **details}


def submit_run(
    *,
    input: str | Sequence[Message | Mapping[str, Any]],
    agent: Any,
    conversation_id: str | None,
    on_conflict: str | None,
    start_after: datetime | None,
    start_by: datetime | None,
    deadline: datetime | None,
    budget: Budget | Mapping[str, int] | None,
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
        "start_after": _moment("start_after", start_after),
        "start_by": _moment("start_by", start_by),
        "deadline": _moment("deadline", deadline),
        "budget": budget.model_dump(exclude_none=True) if isinstance(budget, Budget) else dict(budget or {}) or None,
        "metadata": dict(metadata) if metadata else None,
        "tags": list(tags) or None,
    }
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    if wait:
        headers["Prefer"] = f"wait={wait}"
    return Request("POST", "/v1/runs", headers=headers, body=_given(body))


def get_run(run_id: str, wait: int = 0) -> Request:
    """``GET /v1/runs/{id}``, answered once the run has ended or ``wait`` seconds are over."""
    query = {"wait": str(wait), "until": "terminal"} if wait else {}
    return Request("GET", _path("runs", run_id), query=query)


def list_runs(
    *,
    status: str | Iterable[str] | None,
    conversation_id: str | None,
    tag: str | None,
    limit: int,
    cursor: str | None,
) -> Request:
    """``GET /v1/runs``: one page."""
    wanted = status if status is None or isinstance(status, str) else ",".join(status)
    query = {
        "status": wanted,
        "conversation_id": conversation_id,
        "tag": tag,
        "limit": str(limit),
        "cursor": cursor,
    }
    return Request("GET", "/v1/runs", query={name: text for name, text in query.items() if text})


def follow_run(run_id: str, after: int) -> Request:
    """``GET /v1/runs/{id}/events`` from behind sequence number ``after``."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if after:
        headers["Last-Event-ID"] = str(after)
    return Request("GET", _path("runs", run_id, "events"), headers=headers)


def cancel_run(run_id: str, reason: str | None) -> Request:
    """``POST /v1/runs/{id}/cancel``."""
    return Request("POST", _path("runs", run_id, "cancel"), body=_given({"reason": reason}))


def create_conversation(agent: Any) -> Request:
    """``POST /v1/conversations``; twice makes two, so it is not repeated blindly."""
    return Request("POST", "/v1/conversations", body=_given({"agent": agent}), repeatable=False)


def get_conversation(conversation_id: str) -> Request:
    """``GET /v1/conversations/{id}``."""
    return Request("GET", _path("conversations", conversation_id))


def get_messages(conversation_id: str, after: int) -> Request:
    """``GET /v1/conversations/{id}/messages``: one page, from behind the log's position ``after``."""
    path = _path("conversations", conversation_id, "messages")
    return Request("GET", path, query={"after": str(after)} if after else {})


def get_queues() -> Request:
    """``GET /v1/queues``."""
    return Request("GET", "/v1/queues")


def _path(*parts: str) -> str:
    if "" in parts or "." in parts or ".." in parts:
        raise ValueError("an id is empty or not an id")
    return "/".join(("/v1", *(quote(part, safe="") for part in parts)))


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _message(message: Message | Mapping[str, Any]) -> Any:
    return message.model_dump(mode="json", exclude_unset=True) if isinstance(message, Message) else dict(message)


def _moment(name: str, moment: datetime | None) -> str | None:
    if moment is not None and moment.tzinfo is None:
        raise ValueError(f"{name} needs a time zone: datetime.now(UTC), for instance")
    return None if moment is None else moment.isoformat()
