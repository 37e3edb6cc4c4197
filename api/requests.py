"""The surroundings of a request where it is served: the backend, and the caller."""

from __future__ import annotations

from typing import cast

from starlette.requests import HTTPConnection

from .operations import Backend, Caller


def backend_of(request: HTTPConnection) -> Backend:
    """The backend of the application that serves ``request``."""
    return cast(Backend, request.app.state.backend)


def caller_of(request: HTTPConnection) -> Caller:
    """Return the caller of the request."""
    return cast(Caller, request.scope["state"]["caller"])
