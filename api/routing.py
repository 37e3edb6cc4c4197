"""Requests find handlers by the beginnings of their paths: to ask each route in turn costs more than some answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from fastapi import HTTPException
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from palaver.errors import NotDurable, PalaverError, StoreUnavailable

from .audit import READING, Audit
from .auth import routed_path

_BEGINNING: Final = 2
"""Parts of a path that few routes share: a dialect's prefix, and what it is about."""


class Handlers:
    """An ASGI application: the handlers of the dialects' routes, and another one for whatever they do not serve.

    FastAPI documents a route; here its handler is called as it is. It takes a request and gives an answer, and has no
    dependencies to be solved and no response to be validated.
    """

    def __init__(self, routes: Iterable[BaseRoute], otherwise: ASGIApp) -> None:
        self._otherwise = otherwise
        self._routes: defaultdict[tuple[str, str], list[APIRoute]] = defaultdict(list)
        self._fixed: defaultdict[str, set[str]] = defaultdict(set)
        """The methods of each path that has no parts to be filled in."""
        for route in routes:
            if isinstance(route, APIRoute):
                for method in route.methods or ():
                    self._routes[method, _beginning(route.path)].append(route)
                if not route.param_convertors:
                    self._fixed[route.path] |= route.methods or set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            path = routed_path(scope)
            if scope["method"] not in self._fixed.get(path, (scope["method"],)):
                # Its last part is no id of something, which the routes of other methods would take it for.
                raise HTTPException(405, headers={"Allow": ", ".join(sorted(self._fixed[path]))})
            for route in self._routes.get((scope["method"], _beginning(path)), ()):
                if found := route.path_regex.match(path):
                    parts, convertors = found.groupdict(), route.param_convertors
                    scope["path_params"] = {name: convertors[name].convert(parts[name]) for name in parts}
                    request = Request(scope, receive, send)
                    answer = await (route.endpoint(request) if scope["method"] in READING else _audited(route, request))
                    await answer(scope, receive, send)
                    return
        await self._otherwise(scope, receive, send)


async def _audited(route: APIRoute, request: Request) -> Response:
    audit = Audit(request.scope, route)
    try:
        answer: Response = await route.endpoint(request)
    except Exception as error:
        if isinstance(error, NotDurable | StoreUnavailable) or not isinstance(error, PalaverError):
            audit.failed()
        raise
    audit.answered(answer)
    return answer


def _beginning(path: str) -> str:
    return "/".join(path.split("/", _BEGINNING + 1)[: _BEGINNING + 1])
