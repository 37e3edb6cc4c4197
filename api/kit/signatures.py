"""The parameters of a route, defined once, by those of its handler: they are read from each request and documented."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from palaver.errors import Refused
from palaver.late import dataclass
from palaver.operations import Backend, Caller, refuse_held, require_scope
from palaver.schemas.fields import AgentReference, ServerName
from palaver.vocabulary.scopes import Scope

from ..http.bodies import read_body, read_optional_body
from ..http.headers import JSON, Header, Offers, accepted
from ..http.queries import Query, read_query
from ..http.requests import backend_of, caller_of

Handler = Callable[..., Awaitable[Response]]
_FORM: Final = frozenset({"unknown_parameter", "duplicate_parameter"})
"""Faults of a request that are said whatever it is about, as what is no JSON is."""
_REFERENCE: Final = TypeAdapter[str](AgentReference)
_NAME: Final = TypeAdapter[str](ServerName)
NAME_PATTERN: Final[str] = _NAME.json_schema()["pattern"]
REFERENCE_PATTERN: Final[str] = _REFERENCE.json_schema()["pattern"]
_PLACE: Final = re.compile(r"{(\w+)(?::\w+)?}")


@dataclass(frozen=True, slots=True, eq=False)
class InPath:
    """A part of the path, as the annotation of the parameter that has its name."""

    description: str
    read: Callable[[str], Any] = str
    """The function that makes the parameter's value of it. Raises if there is something wrong with it."""
    format: str | None = None
    """The form of it, as JSON Schema names it."""
    pattern: str | None = None
    """The same as an expression: a name of a form is a comment to who reads the document."""
    keep: Callable[[Backend, Caller, Any], Awaitable[None]] | None = None
    """The function that raises, for the parameter's value, unless a caller who is held to one conversation means that
    one. None if the part names neither a conversation nor a run."""
    look: Callable[[Backend, Any, Caller], Awaitable[object]] | None = None
    """The function that raises unless there is what the parameter's value names: that is said before anything that is
    wrong with the rest of a request. None if it may be something new."""


def read_name(text: str) -> str:
    """Return the name of something on the server that a part of a path is.

    Raises:
        Refused: it is none.
    """
    try:
        return _NAME.validate_python(text)
    except ValidationError:
        why = "must be 1 to 64 letters, digits, _ . and -, and begin with a letter or a digit"
        raise Refused.at("/name", why) from None


def read_reference(text: str) -> str:
    """Return the reference to an agent that a part of a path is.

    Raises:
        Refused: it is none.
    """
    try:
        return _REFERENCE.validate_python(text)
    except ValidationError:
        why = "must be the name of an agent, or NAME@VERSION"
        raise Refused.at("/name", why) from None


AgentInPath = Annotated[
    str,
    InPath(
        "The agent on the server: `support`, or `support@7` for a version.",
        read=read_reference,
        pattern=REFERENCE_PATTERN,
    ),
]


@dataclass(slots=True)
class Takes:
    """The parameters of a route.

    Of the parameters of its handler, a ``Backend`` and a ``Caller`` are those of the request, and an
    ``HTTPConnection`` is where it came in; a ``Query`` is its query parameters, of which there are none otherwise;
    another model its JSON body, which may be left out if there is a default. ``InPath``, ``Header`` and ``Offers``
    annotate the others.
    """

    handler: Handler
    scopes: tuple[Scope, ...] = ()
    """A key needs one of them. None are a probe's: it wants no key, and ignores queries and media types."""
    keeps_to: bool = False
    """True if the handler keeps a caller who is held to one conversation to that one."""
    path: dict[str, InPath] = field(default_factory=dict)
    """The parts of the path by name."""
    query: type[Query] | None = None
    headers: list[Header] = field(default_factory=list)
    offers: Offers | None = None
    body: type[BaseModel] | None = None
    body_name: str = ""
    body_required: bool = False
    readers: dict[str, Callable[[Request], Any]] = field(default_factory=dict)
    """The reader of each parameter but the body, from a request."""

    @classmethod
    def of(cls, handler: Handler, path: str, scopes: tuple[Scope, ...] = (), *, keeps_to: bool = False) -> Takes:
        """Return the parameters that ``handler`` takes at ``path``.

        Raises:
            TypeError: it has a parameter that is none of the above, or another path.
        """
        takes = cls(handler, scopes, keeps_to)
        hints = get_type_hints(handler, include_extras=True)
        for parameter in inspect.signature(handler).parameters.values():
            takes._add(parameter, hints[parameter.name])
        if sorted(takes.path) != sorted(_PLACE.findall(path)):
            raise TypeError(f"{handler.__name__} takes {sorted(takes.path)} of {path}")
        return takes

    @property
    def probe(self) -> bool:
        """True if it wants no key, and ignores queries and media types."""
        return not self.scopes

    def _add(self, parameter: inspect.Parameter, hint: Any) -> None:
        name, (kind, *marks) = parameter.name, get_args(hint) if get_origin(hint) is Annotated else (hint,)
        match next((mark for mark in marks if isinstance(mark, InPath | Header | Offers)), kind):
            case InPath() as part:
                self.path[name] = part
                self.readers[name] = lambda request: part.read(request.path_params[name])
            case Header() as header:
                self.headers.append(header)
                self.readers[name] = header.read
            case Offers() as offers:
                self.offers = offers
                self.readers[name] = lambda request: accepted(request, *offers.kinds)
            case _ if kind is Backend:
                self.readers[name] = backend_of
            case _ if kind is Caller:
                self.readers[name] = caller_of
            case _ if kind is HTTPConnection:
                self.readers[name] = lambda request: request
            case _ if inspect.isclass(kind) and issubclass(kind, Query):
                self.query = kind
                self.readers[name] = lambda request: read_query(request, kind)
            case _ if inspect.isclass(kind) and issubclass(kind, BaseModel):
                self.body, self.body_name = kind, name
                self.body_required = parameter.default is inspect.Parameter.empty
            case _:
                raise TypeError(f"{self.handler.__name__} has a parameter {name} that no request has")

    def endpoint(self, *, in_json: bool, others: type[Query] = Query) -> Callable[[Request], Awaitable[Response]]:
        """Return a function that reads these parameters from a request and calls the handler, which answers ``in_json``
        or with nothing. A query is read as ``others`` where the handler takes none."""
        checks: list[Callable[[Request], object]] = []
        if in_json and self.offers is None and not self.probe:
            checks.append(lambda request: accepted(request, JSON))
        if self.query is None and not self.probe:
            checks.append(lambda request: read_query(request, others))
        handler, readers = self.handler, tuple(self.readers.items())
        body, body_name = self.body, self.body_name
        read = read_body if self.body_required else read_optional_body
        scopes = self.scopes
        keeping = [(name, part.keep) for name, part in self.path.items() if part.keep is not None]
        looking = [(name, part.look) for name, part in self.path.items() if part.look is not None]
        keeps = self.keeps_to or bool(keeping)

        async def keep_to_its_own(request: Request, caller: Caller, arguments: Mapping[str, Any]) -> None:
            if caller.conversation is not None:
                for name, keep in keeping:
                    if name in arguments:
                        await keep(backend_of(request), caller, arguments[name])

        async def endpoint(request: Request) -> Response:
            caller = caller_of(request)
            if caller.scopes is not None and scopes:
                require_scope(caller, *scopes)
                if not keeps:
                    refuse_held(caller)
            for check in checks:
                check(request)
            arguments: dict[str, Any] = {}
            try:
                for name, reader in readers:
                    arguments[name] = reader(request)
                await keep_to_its_own(request, caller, arguments)
                if body is not None:
                    arguments[body_name] = await read(request, body)
                return await handler(**arguments)
            except Refused as refused:
                if refused.code not in _FORM:
                    await keep_to_its_own(request, caller, arguments)
                    for name, look in looking:
                        if name in arguments:
                            await look(backend_of(request), arguments[name], caller)
                raise

        return endpoint
