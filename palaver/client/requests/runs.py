"""The requests about runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from palaver.client.options import BulkOptions, SubmitOptions, Until
from palaver.client.requests.request import (
    Request,
    as_message,
    budget_object,
    idempotency,
    moment,
    page_of,
    parameter,
    path_of,
    without_none,
)
from palaver.schemas.filters import RunFilter, statuses
from palaver.schemas.models import Message


def submit_run(
    input: str | Sequence[Message | Mapping[str, Any]], agent: Any, options: SubmitOptions, wait: int
) -> Request:
    """``POST /v1/runs``; repeatable because it always carries an idempotency key.

    Raises:
        ValueError: a time without a time zone.
    """
    body = {
        "agent": agent,
        "input": input if isinstance(input, str) else [as_message(message) for message in input],
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
    headers = idempotency(options.get("idempotency_key"))
    if wait:
        headers["Prefer"] = f"wait={wait}"
    return Request("POST", "/v1/runs", headers=headers, body=without_none(body))


def get_run(run_id: str, wait: int = 0, until: Until = "terminal") -> Request:
    """``GET /v1/runs/{id}``, answered once the run has come so far or ``wait`` seconds are over."""
    query = {"wait": str(wait), "until": until} if wait else {}
    return Request("GET", path_of("runs", run_id), query=query, run_id=run_id)


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
    query = {name: parameter(value) for name, value in filters.items()}
    return Request("GET", "/v1/runs", query={**query, **page_of(limit, cursor)})


def count_runs(after: datetime | None, before: datetime | None) -> Request:
    """``GET /v1/runs/count``: of those that were submitted between these times. Raises as `run_filter`."""
    admitted = run_filter({"created_after": after, "created_before": before})
    return Request("GET", "/v1/runs/count", query={name: parameter(value) for name, value in admitted.items()})


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
    return Request("DELETE", path_of("runs", run_id), run_id=run_id)


def follow_run(run_id: str, after: int, include: str | None = None) -> Request:
    """``GET /v1/runs/{id}/events`` from behind sequence number ``after``."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if after:
        headers["Last-Event-ID"] = str(after)
    query = without_none({"include": include})
    return Request("GET", path_of("runs", run_id, "events"), query=query, headers=headers, run_id=run_id)


def get_events(run_id: str, after: int) -> Request:
    """``GET /v1/runs/{id}/events``: one page, from behind sequence number ``after``."""
    headers, query = {"Accept": "application/json"}, {"after": str(after), "limit": "500"}
    return Request("GET", path_of("runs", run_id, "events"), query=query, headers=headers, run_id=run_id)


def _post(run_id: str, verb: str, body: Mapping[str, Any], idempotency_key: str | None) -> Request:
    return Request(
        "POST", path_of("runs", run_id, verb), headers=idempotency(idempotency_key), body=body, run_id=run_id
    )


def _json(value: BaseModel | Mapping[str, Any]) -> Any:
    return value.model_dump(mode="json", exclude_unset=True) if isinstance(value, BaseModel) else dict(value)
