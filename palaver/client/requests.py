"""The requests of the SDK: each route as a `Request`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, cast
from urllib.parse import quote

from pydantic import BaseModel

from palaver.client.options import BulkOptions, ConversationChanges, ConversationOptions, SubmitOptions, Until
from palaver.schemas.conversation import ConversationFilter
from palaver.schemas.filters import RunFilter, statuses
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


def submit_run(
    input: str | Sequence[Message | Mapping[str, Any]], agent: Any, options: SubmitOptions, wait: int
) -> Request:
    """``POST /v1/runs``; repeatable because it always carries an idempotency key.

    Raises:
        ValueError: a time without a time zone.
    """
    body = {
        "agent": agent,
        "input": input if isinstance(input, str) else [_message(message) for message in input],
        "conversation_id": options.get("conversation_id"),
        "on_conflict": options.get("on_conflict"),
        "start_after": moment("start_after", options.get("start_after")),
        "start_by": moment("start_by", options.get("start_by")),
        "deadline": moment("deadline", options.get("deadline")),
        "budget": budget_object(options.get("budget")),
        "priority": options.get("priority"),
        "metadata": dict(options.get("metadata") or ()) or None,
        "tags": list(options.get("tags") or ()) or None,
        "secrets": dict(options.get("secrets") or ()) or None,
    }
    headers = _key(options.get("idempotency_key"))
    if wait:
        headers["Prefer"] = f"wait={wait}"
    return Request("POST", "/v1/runs", headers=headers, body=without_none(body))


def get_run(run_id: str, wait: int = 0, until: Until = "terminal") -> Request:
    """``GET /v1/runs/{id}``, answered once the run has come so far or ``wait`` seconds are over."""
    query = {"wait": str(wait), "until": until} if wait else {}
    return Request("GET", _path("runs", run_id), query=query, run_id=run_id)


def run_filter(filters: RunFilter) -> dict[str, Any]:
    """Return the filter for runs as JSON.

    Raises:
        ValueError: a time without a time zone, or no status in ``status``.
    """
    named = statuses(filters)
    if named == ():
        raise ValueError("status names none: leave it out to mean every status")
    fields: dict[str, object] = {name: filters.get(name) for name in RunFilter.__annotations__}
    fields["status"] = None if named is None else list(named)
    fields["metadata"] = dict(filters.get("metadata") or ()) or None
    fields["created_after"] = moment("created_after", filters.get("created_after"))
    fields["created_before"] = moment("created_before", filters.get("created_before"))
    fields["ended_after"] = moment("ended_after", filters.get("ended_after"))
    fields["ended_before"] = moment("ended_before", filters.get("ended_before"))
    return without_none(fields)


def list_runs(filters: Mapping[str, Any], limit: int, cursor: str | None) -> Request:
    """``GET /v1/runs``: one page of those that `run_filter` means."""
    query = {name: _parameter(value) for name, value in filters.items()}
    return Request("GET", "/v1/runs", query={**query, **_page(limit, cursor)})


def _parameter(value: Any) -> str:
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


def act_on_runs(action: str, options: BulkOptions, *, dry_run: bool, limit: int, cursor: str | None) -> Request:
    """``POST /v1/runs/actions``: one page.

    A retry is not repeated blindly: a run that it made may have failed by then, and would be retried in its turn.

    Raises:
        ValueError: as `run_filter`.
    """
    body = {
        "action": action,
        "filter": without_none({**run_filter(options), "older_than": options.get("older_than")}) or None,
        "all": options.get("all") or None,
        "mode": options.get("mode"),
        "reason": options.get("reason"),
        "dry_run": dry_run,
        "limit": limit,
        "cursor": cursor,
    }
    return Request("POST", "/v1/runs/actions", body=without_none(body), repeatable=action != "retry" or dry_run)


def cancel_run(run_id: str, reason: str | None, mode: str, idempotency_key: str | None) -> Request:
    """``POST /v1/runs/{id}/cancel``."""
    return _post(run_id, "cancel", without_none({"mode": mode, "reason": reason}), idempotency_key)


def send_input(run_id: str, items: Sequence[BaseModel | Mapping[str, Any]], idempotency_key: str | None) -> Request:
    """``POST /v1/runs/{id}/input``.

    Raises:
        ValueError: there is no item.
    """
    if not items:
        raise ValueError("there is nothing to send: give at least one item")
    return _post(run_id, "input", {"items": [_json(item) for item in items]}, idempotency_key)


def retry_run(run_id: str, body: Mapping[str, Any], idempotency_key: str | None) -> Request:
    """``POST /v1/runs/{id}/retry``."""
    return _post(run_id, "retry", without_none(body), idempotency_key)


def delete_run(run_id: str) -> Request:
    """``DELETE /v1/runs/{id}``."""
    return Request("DELETE", _path("runs", run_id), run_id=run_id)


def follow_run(run_id: str, after: int, include: str | None = None) -> Request:
    """``GET /v1/runs/{id}/events`` from behind sequence number ``after``."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if after:
        headers["Last-Event-ID"] = str(after)
    query = without_none({"include": include})
    return Request("GET", _path("runs", run_id, "events"), query=query, headers=headers, run_id=run_id)


def get_events(run_id: str, after: int) -> Request:
    """``GET /v1/runs/{id}/events``: one page, from behind sequence number ``after``."""
    headers, query = {"Accept": "application/json"}, {"after": str(after), "limit": "500"}
    return Request("GET", _path("runs", run_id, "events"), query=query, headers=headers, run_id=run_id)


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
        _path("conversations", conversation_id),
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
    query = {name: _parameter(value) for name, value in filters.items()}
    return Request("GET", "/v1/conversations", query={**query, "order": order, **_page(limit, cursor)})


def count_conversations(filters: Mapping[str, Any]) -> Request:
    """``GET /v1/conversations/count`` of those that `conversation_filter` means."""
    return Request("GET", "/v1/conversations/count", query={name: _parameter(value) for name, value in filters.items()})


def follow_conversation(conversation_id: str, after: str, include: str | None = None) -> Request:
    """``GET /v1/conversations/{id}/events`` from behind the event of that id."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if after != "0":
        headers["Last-Event-ID"] = after
    query = without_none({"include": include})
    return Request("GET", _path("conversations", conversation_id, "events"), query=query, headers=headers)


def get_conversation(conversation_id: str) -> Request:
    """``GET /v1/conversations/{id}``."""
    return Request("GET", _path("conversations", conversation_id))


def delete_conversation(conversation_id: str) -> Request:
    """``DELETE /v1/conversations/{id}``."""
    return Request("DELETE", _path("conversations", conversation_id))


def create_key(body: Mapping[str, Any]) -> Request:
    """``POST /v1/keys``. Sent twice it makes two."""
    return Request("POST", "/v1/keys", body=without_none(body), repeatable=False)


def list_keys(tenant: str | None) -> Request:
    """``GET /v1/keys``."""
    return Request("GET", "/v1/keys", query={} if tenant is None else {"tenant": tenant})


def rotate_key(key_id: str, overlap: int | None) -> Request:
    """``POST /v1/keys/{id}/rotate``. Sent twice it makes two."""
    body = None if overlap is None else {"overlap": overlap}
    return Request("POST", _path("keys", key_id, "rotate"), body=body, repeatable=False)


def create_token(body: Mapping[str, Any]) -> Request:
    """``POST /v1/tokens``. Sent twice it makes two, which does no harm."""
    return Request("POST", "/v1/tokens", body=without_none(body))


def revoke_key(key_id: str) -> Request:
    """``DELETE /v1/keys/{id}``."""
    return Request("DELETE", _path("keys", key_id))


def list_tenants() -> Request:
    """``GET /v1/tenants``."""
    return Request("GET", "/v1/tenants")


def get_tenant(name: str) -> Request:
    """``GET /v1/tenants/{tenant}``."""
    return Request("GET", _path("tenants", name))


def change_tenant(name: str, caps: Mapping[str, Any]) -> Request:
    """``PATCH /v1/tenants/{tenant}``; twice does what once does."""
    return Request("PATCH", _path("tenants", name), body=dict(caps))


def export_tenant(name: str, cursor: str | None) -> Request:
    """``GET /v1/tenants/{tenant}/export`` from behind ``cursor``."""
    return Request("GET", _path("tenants", name, "export"), query=without_none({"cursor": cursor}))


def erase_tenant(name: str, tag: str | None) -> Request:
    """``POST /v1/tenants/{tenant}/erase``: one slice; whoever asks again goes on."""
    return Request("POST", _path("tenants", name, "erase"), query=without_none({"tag": tag}))


def set_secrets(conversation_id: str, secrets: Mapping[str, str | None]) -> Request:
    """``PATCH /v1/conversations/{id}/secrets``; twice does what once does."""
    return Request("PATCH", _path("conversations", conversation_id, "secrets"), body={"secrets": dict(secrets)})


def get_secret_names(conversation_id: str) -> Request:
    """``GET /v1/conversations/{id}/secrets``."""
    return Request("GET", _path("conversations", conversation_id, "secrets"))


def get_messages(
    conversation_id: str, after: int, limit: int | None = None, include: str | None = None, order: str | None = None
) -> Request:
    """``GET /v1/conversations/{id}/messages``: one page, from behind the log's position ``after``."""
    place = {"after": str(after) if after else None, "limit": limit and str(limit)}
    query = without_none({**place, "include": include, "order": order})
    return Request("GET", _path("conversations", conversation_id, "messages"), query=query)


def append(conversation_id: str, input: str | Sequence[Message | Mapping[str, Any]], key: str | None) -> Request:
    """``POST /v1/conversations/{id}/messages``."""
    body = {"input": input if isinstance(input, str) else [_message(message) for message in input]}
    return Request("POST", _path("conversations", conversation_id, "messages"), headers=_key(key), body=body)


def withdraw(conversation_id: str, after: int, key: str | None) -> Request:
    """``POST /v1/conversations/{id}/withdraw``."""
    path = _path("conversations", conversation_id, "withdraw")
    return Request("POST", path, headers=_key(key), body={"after": after})


def condense(conversation_id: str, key: str | None) -> Request:
    """``POST /v1/conversations/{id}/condense``."""
    return Request("POST", _path("conversations", conversation_id, "condense"), headers=_key(key))


def ask(conversation_id: str, question: str, seconds: float) -> Request:
    """``POST /v1/conversations/{id}/ask``; twice asks the model twice."""
    body = {"question": question, "timeout": seconds}
    return Request("POST", _path("conversations", conversation_id, "ask"), body=body, repeatable=False)


def fork(conversation_id: str, body: Mapping[str, Any], key: str | None) -> Request:
    """``POST /v1/conversations/{id}/fork``."""
    return Request("POST", _path("conversations", conversation_id, "fork"), headers=_key(key), body=without_none(body))


def put_agent(name: str, agent: Any, version: int | None) -> Request:
    """``PUT /v1/agents/{name}``; twice makes no second version."""
    return Request("PUT", _path("agents", name), headers=_expecting(version), body=agent)


def get_agent(name: str) -> Request:
    """``GET /v1/agents/{name}``."""
    return Request("GET", _path("agents", name))


def list_agents(limit: int, cursor: str | None) -> Request:
    """``GET /v1/agents``: one page."""
    return Request("GET", "/v1/agents", query=_page(limit, cursor))


def delete_agent(name: str, version: int | None) -> Request:
    """``DELETE /v1/agents/{name}``."""
    return Request("DELETE", _path("agents", name), headers=_expecting(version))


def put_schedule(name: str, schedule: Any, version: int | None) -> Request:
    """``PUT /v1/schedules/{name}``; twice makes no second version."""
    return Request("PUT", _path("schedules", name), headers=_expecting(version), body=schedule)


def get_schedule(name: str) -> Request:
    """``GET /v1/schedules/{name}``."""
    return Request("GET", _path("schedules", name))


def list_schedules(limit: int, cursor: str | None) -> Request:
    """``GET /v1/schedules``: one page."""
    return Request("GET", "/v1/schedules", query=_page(limit, cursor))


def change_schedule(name: str, verb: str) -> Request:
    """``POST /v1/schedules/{name}/pause`` or ``resume``; twice does what once does."""
    return Request("POST", _path("schedules", name, verb))


def trigger_schedule(name: str, idempotency_key: str | None) -> Request:
    """``POST /v1/schedules/{name}/trigger``."""
    return Request("POST", _path("schedules", name, "trigger"), headers=_key(idempotency_key))


def delete_schedule(name: str, version: int | None) -> Request:
    """``DELETE /v1/schedules/{name}``."""
    return Request("DELETE", _path("schedules", name), headers=_expecting(version))


def create_batch(body: Mapping[str, Any], idempotency_key: str | None) -> Request:
    """``POST /v1/batches``; repeatable because it always carries an idempotency key."""
    return Request("POST", "/v1/batches", headers=_key(idempotency_key), body=without_none(body))


def append_items(batch_id: str, offset: int, items: Sequence[Any], *, complete: bool) -> Request:
    """``POST /v1/batches/{id}/items``; twice does what once does."""
    body = {"offset": offset, "items": list(items), "complete": complete}
    return Request("POST", _path("batches", batch_id, "items"), body=body)


def get_batch(batch_id: str) -> Request:
    """``GET /v1/batches/{id}``."""
    return Request("GET", _path("batches", batch_id))


def list_batches(limit: int, cursor: str | None) -> Request:
    """``GET /v1/batches``: one page."""
    return Request("GET", "/v1/batches", query=_page(limit, cursor))


def get_results(batch_id: str, after: int) -> Request:
    """``GET /v1/batches/{id}/results``: one page from the cell ``after`` on."""
    query = {"limit": "500", "after": str(after)}
    return Request("GET", _path("batches", batch_id, "results"), query=query, headers={"Accept": "application/json"})


def change_batch(batch_id: str, verb: str) -> Request:
    """``POST /v1/batches/{id}/cancel`` or ``retry``; what is begun again has not failed any more."""
    return Request("POST", _path("batches", batch_id, verb))


def delete_batch(batch_id: str) -> Request:
    """``DELETE /v1/batches/{id}``."""
    return Request("DELETE", _path("batches", batch_id))


def _expecting(version: int | None) -> dict[str, str]:
    """The header that asks for that version of an agent, 0 for none."""
    if version is None:
        return {}
    return {"If-Match": f'"{version}"'} if version else {"If-None-Match": "*"}


def create_webhook(body: Mapping[str, Any]) -> Request:
    """``POST /v1/webhooks``. Sent twice it makes two."""
    return Request("POST", "/v1/webhooks", body=without_none(body), repeatable=False)


def list_webhooks() -> Request:
    """``GET /v1/webhooks``."""
    return Request("GET", "/v1/webhooks")


def get_webhook(webhook_id: str) -> Request:
    """``GET /v1/webhooks/{id}``."""
    return Request("GET", _path("webhooks", webhook_id))


def change_webhook(webhook_id: str, changes: Mapping[str, Any]) -> Request:
    """``PATCH /v1/webhooks/{id}``; twice changes it once."""
    return Request("PATCH", _path("webhooks", webhook_id), body=dict(changes))


def rotate_webhook(webhook_id: str, overlap: int | None) -> Request:
    """``POST /v1/webhooks/{id}/rotate``. Sent twice it makes two secrets."""
    body = {} if overlap is None else {"overlap": overlap}
    return Request("POST", _path("webhooks", webhook_id, "rotate"), body=body, repeatable=False)


def delete_webhook(webhook_id: str) -> Request:
    """``DELETE /v1/webhooks/{id}``."""
    return Request("DELETE", _path("webhooks", webhook_id))


def list_deliveries(webhook_id: str, state: str | None, limit: int, cursor: str | None) -> Request:
    """``GET /v1/webhooks/{id}/deliveries``: one page."""
    query = _page(limit, cursor) | ({} if state is None else {"state": state})
    return Request("GET", _path("webhooks", webhook_id, "deliveries"), query=query)


def replay_deliveries(webhook_id: str, body: Mapping[str, Any]) -> Request:
    """``POST /v1/webhooks/{id}/replay``; twice makes none twice that is pending."""
    return Request("POST", _path("webhooks", webhook_id, "replay"), body=dict(body))


def list_models(limit: int, cursor: str | None) -> Request:
    """``GET /v1/models``: one page."""
    return Request("GET", "/v1/models", query=_page(limit, cursor))


def get_queues() -> Request:
    """``GET /v1/queues``."""
    return Request("GET", "/v1/queues")


def get_usage(start: date | None, end: date | None, group_by: Sequence[str]) -> Request:
    """``GET /v1/usage``."""
    query = {"start": str(start or ""), "end": str(end or ""), "group_by": ",".join(group_by)}
    return Request("GET", "/v1/usage", query={name: value for name, value in query.items() if value})


def get_statistics(window: str, tenant: str | None) -> Request:
    """``GET /v1/statistics``."""
    return Request("GET", "/v1/statistics", query={"window": window, **({} if tenant is None else {"tenant": tenant})})


def _page(limit: int, cursor: str | None) -> dict[str, str]:
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


def _post(run_id: str, verb: str, body: Mapping[str, Any], idempotency_key: str | None) -> Request:
    return Request("POST", _path("runs", run_id, verb), headers=_key(idempotency_key), body=body, run_id=run_id)


def _key(idempotency_key: str | None) -> dict[str, str]:
    """The key that lets a request be sent again: this one, or a fresh one."""
    return {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}


def _path(*parts: str) -> str:
    """A route's path. Raises ValueError for an id that is none."""
    if "" in parts or "." in parts or ".." in parts:
        raise ValueError("an id is empty or not an id")
    return "/".join(("/v1", *(quote(part, safe="") for part in parts)))


def _message(message: Message | Mapping[str, Any]) -> Any:
    """A message to send. One that was read from a conversation goes without its place there."""
    if not isinstance(message, Message):
        return dict(message)
    return message.model_dump(mode="json", exclude_unset=True, include={*Message.model_fields})


def _json(value: BaseModel | Mapping[str, Any]) -> Any:
    return value.model_dump(mode="json", exclude_unset=True) if isinstance(value, BaseModel) else dict(value)
