"""What the SDK asks of runs that are there: each route as a `Request`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from palaver.client.flow import Request
from palaver.client.requests import given, key_header, path
from palaver.models import CancelMode


def cancel_run(run_id: str, reason: str | None, mode: CancelMode, idempotency_key: str | None) -> Request:
    """``POST /v1/runs/{id}/cancel``."""
    body = given({"mode": mode, "reason": reason})
    return _post(run_id, "cancel", body, idempotency_key)


def send_input(run_id: str, items: Sequence[BaseModel | Mapping[str, Any]], idempotency_key: str | None) -> Request:
    """``POST /v1/runs/{id}/input``.

    Raises:
        ValueError: there is no item.
    """
    if not items:
        raise ValueError("there is nothing to send: give at least one item")
    body = {
        "items": [
            item.model_dump(mode="json", exclude_unset=True) if isinstance(item, BaseModel) else dict(item)
            for item in items
        ]
    }
    return _post(run_id, "input", body, idempotency_key)


def retry_run(run_id: str, body: Mapping[str, Any], idempotency_key: str | None) -> Request:
    """``POST /v1/runs/{id}/retry``."""
    return _post(run_id, "retry", given(body), idempotency_key)


def delete_run(run_id: str) -> Request:
    """``DELETE /v1/runs/{id}``."""
    return Request("DELETE", path("runs", run_id), run_id=run_id)


def delete_conversation(conversation_id: str) -> Request:
    """``DELETE /v1/conversations/{id}``."""
    return Request("DELETE", path("conversations", conversation_id))


def act_on_runs(body: Mapping[str, Any]) -> Request:
    """``POST /v1/runs/actions``: one page.

    A retry is not repeated blindly: a run that it made may have failed by then, and would be retried in its turn.
    """
    repeatable = body["action"] != "retry" or body["dry_run"]
    return Request("POST", "/v1/runs/actions", body=given(body), repeatable=repeatable)


def _post(run_id: str, verb: str, body: Mapping[str, Any], idempotency_key: str | None) -> Request:
    headers = key_header(idempotency_key)
    return Request("POST", path("runs", run_id, verb), headers=headers, body=body, run_id=run_id)
