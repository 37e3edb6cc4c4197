"""The outermost layer: request ids, arrival, keys, limits on what precedes the body, and the answer to every error."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import Keys
from api.problems import Problem, respond
from palaver.limits import beyond, most

_MAX_URL: Final = most("url")
_MAX_HEADERS: Final = most("headers")
_MAX_HEADER_COUNT: Final = most("header_count")
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class Edge:
    """ASGI middleware around the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id"))
        state = scope.setdefault("state", {})
        state.update(request_id=request_id, arrived=time.monotonic(), by=None)
        began = False

        async def send_with_id(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            _check_limits(scope, headers)
            if scope["path"].startswith("/v1"):
                keys: Keys = scope["app"].state.keys
                state["by"] = keys.check(headers.get(b"authorization"))
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            answer = respond(error, Request(scope))
            if not began:
                await answer(scope, receive, send_with_id)


def asked_by(request: Request) -> str | None:
    """The name of the key that the request came with, if it has one."""
    return cast(str | None, request.scope["state"]["by"])


def ms_since_arrival(request: Request) -> int:
    """Whole milliseconds since the head of the request was here."""
    return int((time.monotonic() - request.scope["state"]["arrived"]) * 1000)


def _request_id(given: bytes | None) -> str:
    """The client's, if it is one that may enter a log; else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return f"req_{secrets.token_hex(10)}"


def _check_limits(scope: Scope, headers: dict[bytes, Any]) -> None:
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _MAX_URL:
        beyond("url")
        raise Problem("uri_too_long", f"At most {_MAX_URL} bytes.")
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if size > _MAX_HEADERS or len(scope["headers"]) > _MAX_HEADER_COUNT:
        beyond("headers" if size > _MAX_HEADERS else "header_count")
        raise Problem("headers_too_large", f"At most {_MAX_HEADER_COUNT} headers of {_MAX_HEADERS} bytes together.")
    if not _HOST.fullmatch(headers.get(b"host", b"")):
        raise Problem("invalid_host")
    if b"transfer-encoding" in headers and b"content-length" in headers:
        # Servers disagree about where such a body ends; one behind a proxy could be made to smuggle requests.
        raise Problem(
            "malformed_request",
            "Content-Length and Transfer-Encoding together.",
            headers={"Connection": "close"},
        )
