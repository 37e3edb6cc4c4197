"""A dialect: routes below a prefix, whose errors, events and links look as its clients expect. A folder of mappings."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import Scope as AsgiScope

from palaver.config.environment import FromEnvironment
from palaver.late import dataclass
from palaver.vocabulary.scopes import SCOPES, Scope

from ..http.auth import bearer, routed_path
from ..http.problems import Problem, problem_of
from ..http.queries import Query
from ..http.routes import HandlerRoute
from ..http.sockets import CloseCodes, KeyInFrame, SocketHandler, socket_route
from .openapi import Answer, ErrorFormat, Says, Schemas, operation
from .signatures import Handler, Takes

H = TypeVar("H", bound=Handler)
Respond = Callable[[Problem, HTTPConnection], Response]
"""The answer that a problem is to a request, of which nothing but its head may have been read."""

Page = Callable[[Request], Awaitable[Response]]
"""The answer to who reads a page, or a file of it: the same for everybody."""
KeyOf = Callable[[AsgiScope, Mapping[bytes, bytes]], bytes | None]
"""The API key that a request brings."""


@dataclass(frozen=True, slots=True)
class ClosedTable:
    """A table of a dialect that has a row for each member of one of our lists, and no other."""

    members: Collection[str]
    rows: Mapping[Any, object]
    optional: Collection[str] = ()
    """Members that may go without a row: what holds then is said once, for all of them."""

    @property
    def amiss(self) -> set[str]:
        """Members without a row, and rows without a member."""
        rows = {*self.rows}
        return {str(each) for each in ({*self.members} - rows) | (rows - {*self.members, *self.optional})}


class Dialect:
    """The routes of a dialect, and how its problems look: its own, and those of any request for a path below it."""

    def __init__(
        self,
        name: str,
        prefix: str,
        respond: Respond,
        errors: ErrorFormat,
        key_of: KeyOf = bearer,
        query: type[Query] = Query,
        about: str = "",
        tables: Mapping[str, ClosedTable] = MappingProxyType({}),
        settings: type[FromEnvironment] | None = None,
        well_known: Collection[str] = (),
        pages: Mapping[str, Page] = MappingProxyType({}),
        package: str | None = None,
        modules: Sequence[str] = (),
    ) -> None:
        self.name: Final = name
        """The prefix of the names of its operations in the document; empty for none."""
        self.prefix: Final = prefix
        """The prefix of all its paths; empty for the dialect of all paths that no other one has."""
        self.respond: Final = respond
        self.errors: Final = errors
        self.key_of: Final = key_of
        self.query: Final = query
        """The query model of routes that take no parameters there."""
        self.about: Final = about
        """A sentence of the document about the operations that have its name as their tag."""
        self.tables: Final = tables
        """Its names for the members of our closed lists, such as error classes and statuses; a test checks that none is
        missing."""
        self.settings: Final = settings
        """Variables of its operator, PALAVER_<NAME>_…: read at the start, and found by ``Backend.setting``."""
        self.well_known: Final = frozenset(well_known)
        """Its paths that are not below the prefix, as a standard has them elsewhere: ``/.well-known/…``."""
        self.pages: Final = pages
        """Its pages and their files, by their paths, in no document and for who has no key: a browser that follows a
        link sends none. A path that ends in ``/*`` is for all that have one other part there."""
        self.loaded = not modules
        """True if its routes are there."""
        self._package: Final = package
        self._modules: Final = modules
        self._loading: Final = Lock()
        self.probes: Final[set[str]] = set()
        """Paths of its routes that want no key."""
        self.unaudited: Final[set[str]] = set()
        """Its operations that leave a trace of who asked themselves, or none at all."""
        self.audited_reads: Final[set[str]] = set()
        """Its operations that change nothing, and of which it is to be known who asked."""
        self.routes: Final[list[HandlerRoute]] = []
        self.schemas: Final = Schemas()
        self.sockets: Final[list[WebSocketRoute]] = []
        self.socket_scopes: Final[dict[str, Scope]] = {}
        """The scope that a key needs for the sockets at each path."""

    def load(self) -> None:
        """Import the ``modules`` of its ``package``, which add its routes. So is done when the first request comes for
        it, and when all routes are listed; a dialect that names none has its routes from the start."""
        with self._loading:
            for module in () if self.loaded else self._modules:
                import_module(f".{module}", self._package)
            self.loaded = True

    def owns(self, path: str) -> bool:
        """Tell whether a path is below its prefix, or well-known. Without a prefix it owns any, also texts that are no
        path: ``*``, ``host:443``."""
        below = path.startswith(self.prefix) and (not self.prefix or path[len(self.prefix) :][:1] in {"", "/"})
        return below or path in self.well_known

    def page(self, path: str) -> Page | None:
        """Return the page at a path, if there is one."""
        return self.pages.get(path) or self.pages.get(f"{path.rpartition('/')[0]}/*")

    def route(
        self,
        method: str,
        path: str,
        *,
        scope: Scope | tuple[Scope, ...] | None,
        tag: str,
        summary: str,
        answers: Mapping[int, tuple[str, Answer]],
        problems: Sequence[str] = (),
        examples: Mapping[str, Any] | None = None,
        also: Mapping[str, Any] | None = None,
        keeps_to: bool = False,
        audited: bool | None = None,
    ) -> Callable[[H], H]:
        """Serve requests by a handler: its parameters say what they take (``Takes``), its docstring what it does.

        ``answers`` are the statuses with a sentence and a model, the usual one first; ``problems`` the codes that it
        may raise itself; ``examples`` are of its body; ``also`` describes a 200 that is not JSON, by media type.

        A key needs the ``scope``, or one of several. None is a probe's, which tells no more than yes or no: it
        wants no key, and answers whatever else is asked. A key that is held to one conversation is for routes whose
        path names one or a run, and for those whose handler ``keeps_to`` it. A request that changes something is
        written to the audit log, and no other one, unless ``audited`` says otherwise.

        Raises ValueError for a path that is not the dialect's, or a scope that there is not.
        """
        scopes = (scope,) if isinstance(scope, str) else scope or ()
        self._check(path, scopes)

        def declare(handler: H) -> H:
            takes = Takes.of(handler, path, scopes, keeps_to=keeps_to)
            operation_id = "_".join(filter(None, (self.name, handler.__name__)))
            if takes.probe:
                self.probes.add(path)
            if audited is False:
                self.unaudited.add(operation_id)
            elif audited:
                self.audited_reads.add(operation_id)
            says = Says(answers, problems, examples, also)

            def describe() -> dict[str, Any]:
                return {
                    "tags": [tag],
                    "summary": summary,
                    "description": inspect.getdoc(handler) or "",
                    "operationId": operation_id,
                    **operation(takes, says, self.schemas, self.errors),
                }

            self.routes.append(
                HandlerRoute(
                    method,
                    path,
                    takes.endpoint(in_json=any(model is not None for _, model in answers.values()), others=self.query),
                    name=handler.__name__,
                    operation_id=operation_id,
                    describe=describe,
                )
            )
            return handler

        return declare

    def socket(
        self, path: str, *, scope: Scope, key_in: KeyInFrame, codes: CloseCodes, keeps_to: bool = False
    ) -> Callable[[SocketHandler], SocketHandler]:
        """Serve WebSockets by a handler. A key needs the ``scope``; one that is held to one conversation is for those
        whose handler ``keeps_to`` it.

        Raises ValueError for a path that is not the dialect's, or a scope that there is not.
        """
        self._check(path, (scope,))

        def declare(handler: SocketHandler) -> SocketHandler:
            self.sockets.append(socket_route(path, handler, key_in, codes, scope, keeps_to=keeps_to))
            self.socket_scopes[path] = scope
            return handler

        return declare

    def _check(self, path: str, scopes: tuple[Scope, ...]) -> None:
        if not self.owns(path):
            raise ValueError(f"{path} is not below {self.prefix}, the prefix of the dialect {self.name}")
        if unknown := set(scopes).difference(SCOPES):
            raise ValueError(
                f"{path} needs {', '.join(sorted(unknown))}, which no key has: scopes are {', '.join(SCOPES)}"
            )

    def greets(self, scope: AsgiScope) -> bool:
        """Tell whether a request is for one of its sockets, which asks for the key itself."""
        path = routed_path(scope)
        return scope["type"] == "websocket" and any(route.path_regex.match(path) for route in self.sockets)


@lru_cache(maxsize=8)
def _owned(dialects: tuple[Dialect, ...]) -> tuple[tuple[str, ...], frozenset[str], Dialect | None]:
    """The prefixes of dialects and their paths that are elsewhere, and the dialect that owns what others do not."""
    prefixes = tuple(dialect.prefix for dialect in dialects if dialect.prefix)
    well_known = frozenset(path for dialect in dialects for path in dialect.well_known)
    return prefixes, well_known, next((dialect for dialect in dialects if not dialect.prefix), None)


def dialect_of(path: str, dialects: Sequence[Dialect]) -> Dialect:
    """Return the dialect that owns a path: of several, the one with the longest prefix."""
    prefixes, well_known, rest = _owned(tuple(dialects))
    if rest is not None and not path.startswith(prefixes) and path not in well_known:
        return rest
    return max((dialect for dialect in dialects if dialect.owns(path)), key=lambda dialect: len(dialect.prefix))


def respond(error: Exception, request: HTTPConnection) -> Response:
    """Return the answer to an exception, in the dialect of the request."""
    state = request.scope["state"]
    dialect, request_id = cast(Dialect, state["dialect"]), state["request_id"]
    return dialect.respond(problem_of(error, request_id), request)
