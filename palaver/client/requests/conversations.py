"""The requests about conversations: what is in them, and their secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from palaver.client.options import ConversationChanges, ConversationOptions
from palaver.client.requests.request import (
    Request,
    as_message,
    idempotency,
    moment,
    page_of,
    parameter,
    path_of,
    without_none,
)
from palaver.schemas.conversation import ConversationFilter
from palaver.schemas.models import Message


def create_conversation(agent: Any, options: ConversationOptions) -> Request:
    """``POST /v1/conversations``; without an id twice makes two, so it is not repeated blindly."""
    body = {
        "id": options.get("id"),
        "agent": agent,
        "title": options.get("title"),
        "metadata": dict(options.get("metadata") or ()) or None,
        "tags": list(options.get("tags") or ()) or None,
        "secrets": dict(options.get("secrets") or ()) or None,
    }
    return Request("POST", "/v1/conversations", body=without_none(body), repeatable=options.get("id") is not None)


def change_conversation(conversation_id: str, agent: Any, changes: ConversationChanges) -> Request:
    """``PATCH /v1/conversations/{id}``; with a revision the second one would be refused."""
    body: dict[str, Any] = {}
    if "title" in changes:
        body["title"] = changes["title"]
    if "metadata" in changes:
        body["metadata"] = dict(changes["metadata"])
    if "tags" in changes:
        body["tags"] = list(changes["tags"])
    if agent is not None or "agent" in changes:
        body["agent"] = agent
    revision = changes.get("revision")
    return Request(
        "PATCH",
        path_of("conversations", conversation_id),
        body=body | without_none({"revision": revision}),
        repeatable=revision is None,
    )


def conversation_filter(filters: ConversationFilter) -> dict[str, Any]:
    """A filter as JSON, without what is None.

    Raises:
        ValueError: a time without a time zone, or no status where one was to be named.
    """
    fields: dict[str, Any] = {}
    for name, value in filters.items():
        if name == "status" and value is not None:
            names = (
                value.split(",") if isinstance(value, str) else [str(status) for status in cast(Sequence[str], value)]
            )
            if not any(names):
                raise ValueError("status names none: leave it out for all of them")
            fields[name] = names
        elif name == "metadata":
            fields[name] = dict(cast(Mapping[str, str], value or {})) or None
        else:
            fields[name] = moment(name, value) if isinstance(value, datetime) else value
    return without_none(fields)


def list_conversations(filters: Mapping[str, Any], order: str, limit: int, cursor: str | None) -> Request:
    """``GET /v1/conversations``: one page of those that `conversation_filter` means."""
    query = {name: parameter(value) for name, value in filters.items()}
    return Request("GET", "/v1/conversations", query={**query, "order": order, **page_of(limit, cursor)})


def count_conversations(filters: Mapping[str, Any]) -> Request:
    """``GET /v1/conversations/count`` of those that `conversation_filter` means."""
    return Request("GET", "/v1/conversations/count", query={name: parameter(value) for name, value in filters.items()})


def follow_conversation(conversation_id: str, after: str, include: str | None = None) -> Request:
    """``GET /v1/conversations/{id}/events`` from behind the event of that id."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if after != "0":
        headers["Last-Event-ID"] = after
    query = without_none({"include": include})
    return Request("GET", path_of("conversations", conversation_id, "events"), query=query, headers=headers)


def get_conversation(conversation_id: str) -> Request:
    """``GET /v1/conversations/{id}``."""
    return Request("GET", path_of("conversations", conversation_id))


def delete_conversation(conversation_id: str) -> Request:
    """``DELETE /v1/conversations/{id}``."""
    return Request("DELETE", path_of("conversations", conversation_id))


def set_secrets(conversation_id: str, secrets: Mapping[str, str | None]) -> Request:
    """``PATCH /v1/conversations/{id}/secrets``; twice does what once does."""
    return Request("PATCH", path_of("conversations", conversation_id, "secrets"), body={"secrets": dict(secrets)})


def get_secret_names(conversation_id: str) -> Request:
    """``GET /v1/conversations/{id}/secrets``."""
    return Request("GET", path_of("conversations", conversation_id, "secrets"))


def get_messages(
    conversation_id: str, after: int, limit: int | None = None, include: str | None = None, order: str | None = None
) -> Request:
    """``GET /v1/conversations/{id}/messages``: one page, from behind the log's position ``after``."""
    place = {"after": str(after) if after else None, "limit": limit and str(limit)}
    query = without_none({**place, "include": include, "order": order})
    return Request("GET", path_of("conversations", conversation_id, "messages"), query=query)


def append(conversation_id: str, input: str | Sequence[Message | Mapping[str, Any]], key: str | None) -> Request:
    """``POST /v1/conversations/{id}/messages``."""
    body = {"input": input if isinstance(input, str) else [as_message(message) for message in input]}
    return Request("POST", path_of("conversations", conversation_id, "messages"), headers=idempotency(key), body=body)


def withdraw(conversation_id: str, after: int, key: str | None) -> Request:
    """``POST /v1/conversations/{id}/withdraw``."""
    path = path_of("conversations", conversation_id, "withdraw")
    return Request("POST", path, headers=idempotency(key), body={"after": after})


def condense(conversation_id: str, key: str | None) -> Request:
    """``POST /v1/conversations/{id}/condense``."""
    return Request("POST", path_of("conversations", conversation_id, "condense"), headers=idempotency(key))


def ask(conversation_id: str, question: str, seconds: float) -> Request:
    """``POST /v1/conversations/{id}/ask``; twice asks the model twice."""
    body = {"question": question, "timeout": seconds}
    return Request("POST", path_of("conversations", conversation_id, "ask"), body=body, repeatable=False)


def fork(conversation_id: str, body: Mapping[str, Any], key: str | None) -> Request:
    """``POST /v1/conversations/{id}/fork``."""
    return Request(
        "POST", path_of("conversations", conversation_id, "fork"), headers=idempotency(key), body=without_none(body)
    )
