"""How a request finds its handler."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from api.app import create_app
from api.app.routing import Handlers
from api.http.routes import HandlerRoute
from api.native.dialect import NATIVE
from palaver.operations import Caller
from tests.unit.api_world import World, in_one_world

ROUTES = [route for route in create_app().routes if isinstance(route, HandlerRoute)]


class Elsewhere(Exception):
    """The other application was asked."""


class Here(Exception):
    """The handler was asked, with these parts of the path."""


def asked(method: str, path: str, **more: Any) -> Scope:
    state = {"caller": Caller(trusted=True), "request_id": "req_1", "dialect": NATIVE}
    return {
        "type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "state": state, **more
    }  # fmt: skip


async def elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise Elsewhere


async def serve(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of the route that serves it, and what the parts of the path are."""
    for route in ROUTES:

        async def endpoint(request: Any, served: str = route.path) -> None:
            raise Here(served, request.path_params)

        monkeypatch.setattr(route, "endpoint", endpoint)

    async def none(*_: object) -> Any:
        raise AssertionError

    with pytest.raises(Here) as found:
        await Handlers(elsewhere, ROUTES)(scope, none, none)
    served, parts = found.value.args
    assert set(parts.values()) <= {"it"}
    return str(served)


async def test_every_handler_is_found_without_asking_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    for route in ROUTES:
        path = re.sub(r"{\w+(:\w+)?}", "it", route.path)
        assert await serve(asked(route.method, path), monkeypatch) == route.path
        assert await serve(asked(route.method, f"/below{path}", root_path="/below"), monkeypatch) == route.path


@pytest.mark.parametrize(
    "scope",
    [
        asked("GET", "/v1/runs/"),
        asked("GET", "/v1"),
        asked("GET", "//v1/runs"),
        asked("GET", "*"),
        asked("GET", ""),
        {"type": "websocket", "path": "/v1/runs", "headers": [], "state": {"caller": Caller(trusted=True)}},
    ],
)
async def test_what_no_handler_serves_is_the_frameworks(scope: Scope) -> None:
    async def none(*_: object) -> Any:
        raise AssertionError

    with pytest.raises(Elsewhere):
        await Handlers(elsewhere, ROUTES)(scope, none, none)


@in_one_world(sorted({route.path for route in ROUTES}))
async def test_a_path_answers_its_own_methods_only_and_names_them(api: World, path: str) -> None:
    methods = {route.method for route in ROUTES if route.path == path}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - methods:
        answer = await api.client.request(method, re.sub(r"{\w+(:\w+)?}", "it", path))
        assert answer.status_code == 405, method
        assert answer.headers["Allow"] == ", ".join(sorted(methods))
