"""Requests find handlers by the shapes of their paths: the framework would take a quarter of a request's CPU for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from palaver.errors import NotDurable, PalaverError, StoreUnavailable

from ..http.audit import READING, Audit
from ..http.auth import DOCUMENTS, routed_path
from ..http.routes import HandlerRoute
from ..http.sockets import has_socket

_BEGINNING: Final = 3
"""Parts of a path, the empty one before its first slash too, that few routes share: a dialect's prefix, and what it is
about."""
_ANY_LENGTH: Final = 0
_WITH_SLASHES: Final = ":path}"


class Handlers:
    """ASGI middleware: the handlers of the dialects' routes, before an application that serves all other requests."""

    def __init__(self, otherwise: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._otherwise = otherwise
        self.serve(routes)

    def serve(self, routes: Iterable[BaseRoute]) -> None:
        """Serve these routes, and no others."""
        by_path: defaultdict[str, dict[str, HandlerRoute]] = defaultdict(dict)
        for route in routes:
            if isinstance(route, HandlerRoute):
                by_path[route.path][route.method] = route
        self._paths: defaultdict[tuple[int, str], list[dict[str, HandlerRoute]]] = defaultdict(list)
        """By the shape of paths, the routes of these paths by their methods. Of paths that a request fits, the one with
        the fewest parts to fill in is meant, so it is the first. One whose last part may have slashes has any length,
        and the shape of none."""
        for path in sorted(by_path, key=lambda path: path.count("{")):
            self._paths[_shape(path)].append(by_path[path])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            path = routed_path(scope)
            shape = _shape(path)
            for methods in (*self._paths.get(shape, ()), *self._paths.get((_ANY_LENGTH, shape[1]), ())):
                route = next(iter(methods.values()))
                if match := route.path_regex.match(path):
                    if scope["method"] not in methods:
                        raise HTTPException(405, headers={"Allow": ", ".join(sorted(methods))})
                    parts, convertors = match.groupdict(), route.param_convertors
                    scope["path_params"] = {name: convertors[name].convert(parts[name]) for name in parts}
                    route, request = methods[scope["method"]], Request(scope, receive, send)
                    unseen = scope["method"] in READING and not scope["state"]["caller"].operator
                    unseen = unseen and route.operation_id not in scope["state"]["dialect"].audited_reads
                    answer = await (route.endpoint(request) if unseen else _audited(route, request))
                    await answer(scope, receive, send)
                    return
            if (page := scope["state"]["dialect"].page(path)) is not None:
                if scope["method"] not in ("GET", "HEAD"):
                    raise HTTPException(405, headers={"Allow": "GET, HEAD"})
                await (await page(Request(scope, receive, send)))(scope, receive, send)
                return
            if scope["state"]["caller"].scopes is not None and path not in DOCUMENTS:
                # What was added here says no scope that a key would need for it.
                raise HTTPException(404)
        elif scope["type"] == "websocket" and scope["state"]["caller"].scopes is not None and not has_socket(scope):
            raise HTTPException(404)
        await self._otherwise(scope, receive, send)


async def _audited(route: HandlerRoute, request: Request) -> Response:
    audit = Audit(request.scope, route)
    try:
        answer: Response = await route.endpoint(request)
    except Exception as error:
        if isinstance(error, NotDurable | StoreUnavailable) or not isinstance(error, PalaverError):
            await audit.failed()
        raise
    await audit.answered(answer)
    return answer


def _shape(path: str) -> tuple[int, str]:
    parts = path.split("/")
    return _ANY_LENGTH if path.endswith(_WITH_SLASHES) else len(parts), "/".join(parts[:_BEGINNING])
