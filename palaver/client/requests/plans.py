"""The requests about runs that were planned: schedules, and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaver.client.requests.request import (
    Request,
    expecting,
    idempotency,
    page_of,
    path_of,
    without_none,
)


def put_schedule(name: str, schedule: Any, version: int | None) -> Request:
    """``PUT /v1/schedules/{name}``; twice makes no second version."""
    return Request("PUT", path_of("schedules", name), headers=expecting(version), body=schedule)


def get_schedule(name: str) -> Request:
    """``GET /v1/schedules/{name}``."""
    return Request("GET", path_of("schedules", name))


def list_schedules(limit: int, cursor: str | None) -> Request:
    """``GET /v1/schedules``: one page."""
    return Request("GET", "/v1/schedules", query=page_of(limit, cursor))


def change_schedule(name: str, verb: str) -> Request:
    """``POST /v1/schedules/{name}/pause`` or ``resume``; twice does what once does."""
    return Request("POST", path_of("schedules", name, verb))


def trigger_schedule(name: str, idempotency_key: str | None) -> Request:
    """``POST /v1/schedules/{name}/trigger``."""
    return Request("POST", path_of("schedules", name, "trigger"), headers=idempotency(idempotency_key))


def delete_schedule(name: str, version: int | None) -> Request:
    """``DELETE /v1/schedules/{name}``."""
    return Request("DELETE", path_of("schedules", name), headers=expecting(version))


def create_batch(body: Mapping[str, Any], idempotency_key: str | None) -> Request:
    """``POST /v1/batches``; repeatable because it always carries an idempotency key."""
    return Request("POST", "/v1/batches", headers=idempotency(idempotency_key), body=without_none(body))


def append_items(batch_id: str, offset: int, items: Sequence[Any], *, complete: bool) -> Request:
    """``POST /v1/batches/{id}/items``; twice does what once does."""
    body = {"offset": offset, "items": list(items), "complete": complete}
    return Request("POST", path_of("batches", batch_id, "items"), body=body)


def get_batch(batch_id: str) -> Request:
    """``GET /v1/batches/{id}``."""
    return Request("GET", path_of("batches", batch_id))


def list_batches(limit: int, cursor: str | None) -> Request:
    """``GET /v1/batches``: one page."""
    return Request("GET", "/v1/batches", query=page_of(limit, cursor))


def get_results(batch_id: str, after: int) -> Request:
    """``GET /v1/batches/{id}/results``: one page from the cell ``after`` on."""
    query = {"limit": "500", "after": str(after)}
    return Request("GET", path_of("batches", batch_id, "results"), query=query, headers={"Accept": "application/json"})


def change_batch(batch_id: str, verb: str) -> Request:
    """``POST /v1/batches/{id}/cancel`` or ``retry``; what is begun again has not failed any more."""
    return Request("POST", path_of("batches", batch_id, verb))


def delete_batch(batch_id: str) -> Request:
    """``DELETE /v1/batches/{id}``."""
    return Request("DELETE", path_of("batches", batch_id))
