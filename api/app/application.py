"""The application, which ``palaver api`` serves."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Lifespan

from palaver.config.policy import OperatorPolicy, load_policy
from palaver.config.providers import Provider, load_providers
from palaver.config.settings import Settings, read
from palaver.config.settings import settings as environment
from palaver.delivery.publishing import LoopPublisher
from palaver.errors import ConfigurationError
from palaver.feature import brought, features, put_behind
from palaver.operations import Backend, Publishing, StoredKeys
from palaver.operations.catalog import Catalog
from palaver.operations.live_keys import TokenReader
from palaver.operations.measured import Measured
from palaver.operations.planning_rules import say_rules
from palaver.processes.tasks import end
from palaver.processes.turns import Turns
from palaver.steps.policies import load_policies
from palaver.steps.retry import RetryPolicy
from palaver.store import Store
from palaver.store.server.preflight import Preflight

from ..kit.dialects import Dialect, respond
from .installed import add_routes, dialects_of
from .middleware import Access, Middleware
from .pages import add_pages
from .preparing import prepare_first_run
from .routing import Handlers

_INFO: Final = {
    "title": "Palaver",
    "summary": "Agent conversations on Celery: submit and forget.",
    "version": "1",
}
_GROUPS: Final = {
    "runs": "Submit, read, follow and stop runs.",
    "conversations": "What was said, and what is known about it.",
    "agents": "Agents on the server, which runs name.",
    "operations": "What serves runs: queues, models, tools, health, metrics.",
}
"""Groups of operations, in the order in which people read about them; behind them comes a group for each dialect. In
front of the last stand those of features."""
_SOCKETS_A_TURN: Final = 1
"""Sockets that are admitted, sent something or closed in a turn of the event loop: the work for one takes up to a
millisecond, and others are to be served in between."""
_TURNS_BETWEEN: Final = 4
"""Turns between two of sockets, which belong to others alone: a request takes some ten of them."""
_RUN: Final = "/v1/runs/{run_id}"
_FIRST: Final = ("/v1/runs", _RUN, *(f"{_RUN}/{what}" for what in ("events", "cancel", "input", "retry")))
"""Paths in the order in which a client needs them; all others come behind them, short ones first."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def create_app(
    settings: Settings | None = None,
    store: Store | None = None,
    publisher: Publishing | None = None,
    providers: Mapping[str, Provider] | None = None,
    policies: Mapping[str, RetryPolicy] | None = None,
    dialects: Sequence[Dialect] | None = None,
    policy: OperatorPolicy | None = None,
    access: type[Access] = Access,
) -> ApiApplication:
    """Return the API. Arguments that are left out are made from the settings, and these from the environment, when it
    starts.

    One of the ``dialects`` has no prefix: it owns what the others do not. ``access`` is made of the settings when it
    starts. Raises ValueError if none is such, and ConfigurationError for dialects that are not installed.

    Starting raises ConfigurationError for settings that do not fit.
    """
    add_routes()
    if dialects is None:
        chosen = settings or environment()
        dialects = dialects_of(chosen.dialects, console=chosen.console)
    if all(dialect.prefix for dialect in dialects):
        raise ValueError("one of the dialects needs an empty prefix: it owns what the others do not")

    @asynccontextmanager
    async def lifespan(app: ApiApplication) -> AsyncIterator[None]:
        chosen = settings or environment()
        app.state.read_lately = OrderedDict()
        app.state.turns = Turns(_SOCKETS_A_TURN, rest=_TURNS_BETWEEN)
        opened = store or Store.connect(chosen, shared=True, send=publisher is None)
        stored_keys = StoredKeys(opened.api_keys, opened.signing_keys)
        foreign = _foreign_tokens(chosen, opened)
        app.state.access = access.of(chosen, stored_keys, foreign)
        known = load_providers(chosen.providers) if providers is None else providers
        backend = app.state.backend = Backend(
            settings=chosen,
            store=opened,
            publisher=publisher or LoopPublisher(chosen.deliveries_url),
            providers=known,
            catalog=Catalog(opened),
            measured=Measured(opened, known),
            policies=load_policies(chosen.retry_policies) if policies is None else policies,
            policy=load_policy(chosen.policy) if policy is None else policy,
            dialect_settings=[read(dialect.settings) for dialect in app.state.dialects if dialect.settings],
        )
        beside: list[asyncio.Task[None]] = []
        watching = asyncio.create_task(backend.store.rewinds.watch())
        preflight = Preflight(chosen, "api")
        try:
            await backend.store.require_durability()
            await backend.store.feature_set.require()
            if store is None:
                preflight.start()
                beside.append(asyncio.create_task(say_rules(backend), name="palaver-rules"))
                beside.append(asyncio.create_task(prepare_first_run(backend.store), name="palaver-first-run"))
            with closing_on_signals(backend.closing):
                yield
        finally:
            backend.closing.set()
            await end(watching)
            for task in beside:
                await end(task)
            preflight.end()
            await stored_keys.close()
            if foreign is not None:
                await foreign.close()
            await backend.close()
            if publisher is None:
                await backend.publisher.close()
            if store is None:
                await backend.store.close()

    return ApiApplication(tuple(dialects), lifespan)


def _foreign_tokens(settings: Settings, store: Store) -> TokenReader | None:
    """Return the reader of tokens of others. Raises ConfigurationError: the settings ask for one that is not there."""
    readers = (reader_of(settings, store) for reader_of in brought("tokens"))
    reader: TokenReader | None = next((each for each in readers if each is not None), None)
    if reader is None and settings.oidc_issuer is not None:
        raise ConfigurationError("PALAVER_OIDC_ISSUER is set, and no feature that is installed reads its tokens")
    return reader


class ApiApplication(Starlette):
    """The application of these dialects."""

    def __init__(self, dialects: tuple[Dialect, ...], lifespan: Lifespan[ApiApplication]) -> None:
        super().__init__(lifespan=lifespan, exception_handlers={HTTPException: _no_route, Exception: _not_here})
        self.router.redirect_slashes = False
        self.state.dialects = dialects
        self._document: dict[str, Any] | None = None
        self._spoken: set[Dialect] = set()
        """Dialects whose routes are served: others are loaded with the first request for them."""
        self._handlers: Handlers | None = None
        for dialect in dialects:
            if dialect.loaded:
                self._serve(dialect)
        add_pages(self, _INFO["title"], self.openapi)

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes of all dialects, and the framework's."""
        for dialect in self.state.dialects:
            dialect.load()
            self._serve(dialect)
        return self.router.routes

    def speaks(self, dialect: Dialect) -> bool:
        """Tell whether its routes are served already."""
        return dialect in self._spoken

    async def learn(self, dialect: Dialect) -> None:
        """Serve the routes of a dialect, which are loaded in a thread: others are answered meanwhile."""
        if not dialect.loaded:
            await asyncio.to_thread(dialect.load)
        self._serve(dialect)

    def _serve(self, dialect: Dialect) -> None:
        if dialect not in self._spoken:
            self._spoken.add(dialect)
            self.router.routes.extend([*dialect.routes, *dialect.sockets])
            if self._handlers is not None:
                self._handlers.serve(self.router.routes)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, made when it is first asked for.

        Raises ValueError if two dialects have different schemas of one name.
        """
        if self._document is None:
            self._document = _document(self)
        return self._document

    def build_middleware_stack(self) -> ASGIApp:
        """Our layers, and behind them the framework's: sockets, documents, and what is not there."""
        self._handlers = Handlers(super().build_middleware_stack(), self.router.routes)
        return Middleware(self._handlers)


@contextmanager
def closing_on_signals(closing: asyncio.Event) -> Iterator[None]:
    """Set ``closing`` on SIGTERM and SIGINT, then do what was done before.

    uvicorn tells an application only after all connections have ended, and a stream ends when its run does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}

    def tell(number: int, where: FrameType | None) -> None:
        loop.call_soon_threadsafe(closing.set)
        if callable(before[number]):
            before[number](number, where)

    for number, handler in before.items():
        # Only where a server listens already: elsewhere, in a test or a REPL, Ctrl-C is not ours.
        if callable(handler) and handler is not signal.default_int_handler:
            signal.signal(number, tell)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is tell:
                signal.signal(number, handler)


def require_redis(settings: Settings) -> None:
    """Check Redis, for a process that has no loop yet. Raises ConfigurationError if Redis cannot be trusted, or cannot
    keep the promise of PALAVER_DURABILITY."""
    Preflight(settings, "api").require()
    asyncio.run(_require_durability(settings))


async def _require_durability(settings: Settings) -> None:
    async with Store.connect(settings) as store:
        await store.require_durability()


async def _no_route(request: Request, error: Exception) -> Response:
    return respond(error, request)


async def _not_here(request: Request, error: Exception) -> Response:
    """Leave an error to the layers around the framework's own."""
    raise error


def _document(app: ApiApplication) -> dict[str, Any]:
    dialects: tuple[Dialect, ...] = app.state.dialects
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for dialect in dialects:
        dialect.load()
    for route in (route for dialect in dialects for route in dialect.routes):
        paths[route.path_format][route.method.lower()] = route.describe()
    # Describing the routes has gathered the schemas.
    components: dict[str, Any] = {"schemas": _schemas(dialects)}
    if _wants_keys(app):
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    else:
        for methods in paths.values():
            for operation in methods.values():
                operation.pop("security", None)
    groups = _groups() | {dialect.name: dialect.about for dialect in dialects if dialect.about}
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "paths": dict(sorted(paths.items(), key=lambda entry: _when_used(entry, [*groups]))),
        "components": components,
        "tags": [{"name": name, "description": about} for name, about in groups.items()],
    }


def _groups() -> dict[str, str]:
    groups, order = dict(_GROUPS), [*_GROUPS]
    for group in (feature.group for feature in features().values() if feature.group):
        groups[group.name] = group.about
        put_behind(order, group.name, group.after, otherwise=len(order) - 1)
    return {name: groups[name] for name in order}


def _when_used(entry: tuple[str, Mapping[str, Any]], groups: Sequence[str]) -> tuple[int, int, int]:
    path, methods = entry
    (group,) = {tag for operation in methods.values() for tag in operation["tags"]}
    place = _FIRST.index(path) if path in _FIRST else len(_FIRST)
    return [*groups, group].index(group), place, path.count("/")


def _schemas(dialects: Sequence[Dialect]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for dialect in dialects:
        own = {dialect.errors.name: dialect.errors.schema, **dialect.schemas.components()}
        for name, schema in own.items():
            if schemas.setdefault(name, schema) != schema:
                raise ValueError(f"two dialects have a schema {name}, and not the same")
    return schemas


def _wants_keys(app: ApiApplication) -> bool:
    """Tell whether there are keys; before the application is started it is not known that there are none."""
    access: Access | None = getattr(app.state, "access", None)
    return access is None or not access.keys.listed.none
