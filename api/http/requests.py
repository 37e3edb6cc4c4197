"""The surroundings of a request: the backend, its caller, and the root at which its client sees this API."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, cast
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.types import Scope

from palaver.operations import Backend, Caller

_ROOT: Final[ContextVar[str]] = ContextVar("palaver-root", default="")
"""The root: the part that a proxy takes off the path, or the path of an application around this one."""


def backend_of(request: HTTPConnection) -> Backend:
    """Return the backend of the application that serves ``request``."""
    return cast(Backend, request.app.state.backend)


def caller_of(request: HTTPConnection) -> Caller:
    """Return the caller of the request."""
    return cast(Caller, request.scope["state"]["caller"])


def request_id_of(request: HTTPConnection) -> str:
    """Return the id of the request."""
    return cast(str, request.scope["state"]["request_id"])


def enter_root(scope: Scope) -> None:
    """Make links for the client of this request from here on."""
    _ROOT.set(quote(str(scope.get("root_path") or "").rstrip("/")))


def below_root(path: str) -> str:
    """Return the ``path`` of a route, as the client of this request has to ask for it."""
    return _ROOT.get() + path
