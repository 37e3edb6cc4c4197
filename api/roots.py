"""The root of this API for its clients: below the part that a proxy takes off the path, or the place where an
application around it has it."""

from __future__ import annotations

from contextvars import ContextVar
from urllib.parse import quote

from starlette.types import Scope

_ROOT: ContextVar[str] = ContextVar("palaver-root", default="")


def enter_root(scope: Scope) -> None:
    """From here on links are for the client of this request."""
    _ROOT.set(quote(str(scope.get("root_path") or "").rstrip("/")))


def below_root(path: str) -> str:
    """``path`` of a route, as the client of this request has to ask for it."""
    return _ROOT.get() + path
