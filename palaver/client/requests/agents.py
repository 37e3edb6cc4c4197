"""The requests about what runs are made of: agents that the server keeps, models, and queues."""

from __future__ import annotations

from typing import Any

from palaver.client.requests.request import (
    Request,
    expecting,
    page_of,
    path_of,
)


def put_agent(name: str, agent: Any, version: int | None) -> Request:
    """``PUT /v1/agents/{name}``; twice makes no second version."""
    return Request("PUT", path_of("agents", name), headers=expecting(version), body=agent)


def get_agent(name: str) -> Request:
    """``GET /v1/agents/{name}``."""
    return Request("GET", path_of("agents", name))


def list_agents(limit: int, cursor: str | None) -> Request:
    """``GET /v1/agents``: one page."""
    return Request("GET", "/v1/agents", query=page_of(limit, cursor))


def delete_agent(name: str, version: int | None) -> Request:
    """``DELETE /v1/agents/{name}``."""
    return Request("DELETE", path_of("agents", name), headers=expecting(version))


def list_models(limit: int, cursor: str | None) -> Request:
    """``GET /v1/models``: one page."""
    return Request("GET", "/v1/models", query=page_of(limit, cursor))


def get_queues() -> Request:
    """``GET /v1/queues``."""
    return Request("GET", "/v1/queues")
