"""The requests about a tenant: who may ask in its name, its caps, its usage, and its webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from palaver.client.requests.request import (
    Request,
    page_of,
    path_of,
    without_none,
)


def create_key(body: Mapping[str, Any]) -> Request:
    """``POST /v1/keys``. Sent twice it makes two."""
    return Request("POST", "/v1/keys", body=without_none(body), repeatable=False)


def list_keys(tenant: str | None) -> Request:
    """``GET /v1/keys``."""
    return Request("GET", "/v1/keys", query={} if tenant is None else {"tenant": tenant})


def rotate_key(key_id: str, overlap: int | None) -> Request:
    """``POST /v1/keys/{id}/rotate``. Sent twice it makes two."""
    body = None if overlap is None else {"overlap": overlap}
    return Request("POST", path_of("keys", key_id, "rotate"), body=body, repeatable=False)


def create_token(body: Mapping[str, Any]) -> Request:
    """``POST /v1/tokens``. Sent twice it makes two, which does no harm."""
    return Request("POST", "/v1/tokens", body=without_none(body))


def revoke_key(key_id: str) -> Request:
    """``DELETE /v1/keys/{id}``."""
    return Request("DELETE", path_of("keys", key_id))


def list_tenants() -> Request:
    """``GET /v1/tenants``."""
    return Request("GET", "/v1/tenants")


def get_tenant(name: str) -> Request:
    """``GET /v1/tenants/{tenant}``."""
    return Request("GET", path_of("tenants", name))


def change_tenant(name: str, caps: Mapping[str, Any]) -> Request:
    """``PATCH /v1/tenants/{tenant}``; twice does what once does."""
    return Request("PATCH", path_of("tenants", name), body=dict(caps))


def export_tenant(name: str, cursor: str | None) -> Request:
    """``GET /v1/tenants/{tenant}/export`` from behind ``cursor``."""
    return Request("GET", path_of("tenants", name, "export"), query=without_none({"cursor": cursor}))


def erase_tenant(name: str, tag: str | None) -> Request:
    """``POST /v1/tenants/{tenant}/erase``: one slice; the next request goes on."""
    return Request("POST", path_of("tenants", name, "erase"), query=without_none({"tag": tag}))


def create_webhook(body: Mapping[str, Any]) -> Request:
    """``POST /v1/webhooks``. Sent twice it makes two."""
    return Request("POST", "/v1/webhooks", body=without_none(body), repeatable=False)


def list_webhooks() -> Request:
    """``GET /v1/webhooks``."""
    return Request("GET", "/v1/webhooks")


def get_webhook(webhook_id: str) -> Request:
    """``GET /v1/webhooks/{id}``."""
    return Request("GET", path_of("webhooks", webhook_id))


def change_webhook(webhook_id: str, changes: Mapping[str, Any]) -> Request:
    """``PATCH /v1/webhooks/{id}``; twice changes it once."""
    return Request("PATCH", path_of("webhooks", webhook_id), body=dict(changes))


def rotate_webhook(webhook_id: str, overlap: int | None) -> Request:
    """``POST /v1/webhooks/{id}/rotate``. Sent twice it makes two secrets."""
    body = {} if overlap is None else {"overlap": overlap}
    return Request("POST", path_of("webhooks", webhook_id, "rotate"), body=body, repeatable=False)


def delete_webhook(webhook_id: str) -> Request:
    """``DELETE /v1/webhooks/{id}``."""
    return Request("DELETE", path_of("webhooks", webhook_id))


def list_deliveries(webhook_id: str, state: str | None, limit: int, cursor: str | None) -> Request:
    """``GET /v1/webhooks/{id}/deliveries``: one page."""
    query = page_of(limit, cursor) | ({} if state is None else {"state": state})
    return Request("GET", path_of("webhooks", webhook_id, "deliveries"), query=query)


def replay_deliveries(webhook_id: str, body: Mapping[str, Any]) -> Request:
    """``POST /v1/webhooks/{id}/replay``; twice makes none twice that is pending."""
    return Request("POST", path_of("webhooks", webhook_id, "replay"), body=dict(body))


def get_usage(start: date | None, end: date | None, group_by: Sequence[str]) -> Request:
    """``GET /v1/usage``."""
    query = {"start": str(start or ""), "end": str(end or ""), "group_by": ",".join(group_by)}
    return Request("GET", "/v1/usage", query={name: value for name, value in query.items() if value})


def get_statistics(window: str, tenant: str | None) -> Request:
    """``GET /v1/statistics``."""
    return Request("GET", "/v1/statistics", query={"window": window, **({} if tenant is None else {"tenant": tenant})})
