"""The server itself: routes, start and stop, on the caller's event loop or in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

import orjson
from aiohttp import web

from palaver.testing.model_server import wire
from palaver.testing.model_server.completions import Completions
from palaver.testing.model_server.dialects import DIALECTS
from palaver.testing.model_server.grammar import known
from palaver.testing.model_server.ledger import Ledger, LedgerEntry

BACKLOG = 4096
"""Connections that may wait to be accepted: a bench opens its connections all at once."""
STOP_AFTER = 0.1
"""Seconds that open requests get when the server stops; one that hangs would never end by itself."""
PAGE = 1000
"""Ledger entries in a page of GET /ledger unless `limit` says otherwise."""
MODELS = ("echo", "say-20", "tool-3", "parallel-2-2+use-each", "echo+429-1", "tokens-100+rate-20")
"""What GET /v1/models shows: examples, since every sentence of the grammar is a model."""


class ModelServer:
    """A model server, steered by model names (see the package docstring).

    `port` 0 takes a free port. `ledger` is a file that also gets the ledger. With `api_key`, other keys get
    401. Use it as an async context manager on the running loop, or in a thread of its own: `with
    ModelServer.running() as server:`. A server starts once. Starting raises OSError when the port is taken
    or the ledger file cannot be opened.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ledger: Path | str | None = None,
        api_key: str | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._ledger = Ledger(Path(ledger) if ledger is not None else None)
        self._dialects = [Completions(dialect, self._ledger, api_key) for dialect in DIALECTS]
        self._open = ExitStack()
        self._runner: web.ServerRunner | None = None
        self._routes: dict[tuple[str, str], Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            **{("POST", dialect.path): each.answer for dialect, each in zip(DIALECTS, self._dialects, strict=True)},
            ("GET", "/v1/models"): self._models,
            ("GET", "/ledger"): self._page,
            ("DELETE", "/ledger"): self._forget,
            ("GET", "/healthz"): self._healthz,
        }

    @classmethod
    @contextmanager
    def running(
        cls,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ledger: Path | str | None = None,
        api_key: str | None = None,
    ) -> Iterator[ModelServer]:
        """A server in a thread with its own event loop. Arguments and errors are those of the class."""
        server = cls(host=host, port=port, ledger=ledger, api_key=api_key)
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

        async def serve() -> None:
            stop = asyncio.Event()
            try:
                async with server:
                    started.set_result((asyncio.get_running_loop(), stop))
                    await stop.wait()
            except OSError as error:
                started.set_exception(error)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="model-server", daemon=True)
        thread.start()
        loop, stop = started.result()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    async def __aenter__(self) -> ModelServer:
        with ExitStack() as opening:
            opening.enter_context(self._ledger)
            self._runner = web.ServerRunner(
                web.Server(self._route, handler_cancellation=True, access_log=None),
                shutdown_timeout=STOP_AFTER,
            )
            await self._runner.setup()
            await web.TCPSite(self._runner, self._host, self._port, backlog=BACKLOG).start()
            self._open = opening.pop_all()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._dialects:
            each.stopping = True
        with self._open:
            if self._runner is not None:
                await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Where the server listens: `/ledger` and `/healthz` are below it."""
        return f"http://{self._host}:{self._port}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL; Anthropic's takes `url`."""
        return f"{self.url}/v1"

    def ledger(self, *, after: int = 0, limit: int | None = None, **equal: object) -> list[LedgerEntry]:
        """Entries so far, oldest first, also after the server stopped: `ledger(run="run_1", outcome="open")`.

        `after` leaves out numbers up to it, `limit` keeps the first so many, any other name is a field of
        the entry and the value it must have. May be called from any thread. Raises AttributeError for
        unknown fields.
        """
        return self._ledger.entries(after=after, limit=limit, **equal)

    def forget(self) -> None:
        """Empty the ledger; tries are counted anew."""
        self._ledger.forget()

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = self._routes.get((request.method, request.path))
        if handler is None:
            message = f"Unknown request URL: {request.method} {request.path}."
            return _json(404, wire.error(message, "invalid_request_error", "unknown_url"))
        return await handler(request)

    async def _models(self, request: web.BaseRequest) -> web.StreamResponse:
        if not any(each.authorised(request) for each in self._dialects):
            return _json(*self._dialects[0].unauthorised())
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "palaver"} for name in MODELS]
        return _json(200, orjson.dumps({"object": "list", "data": data, "directives": known()}))

    async def _page(self, request: web.BaseRequest) -> web.StreamResponse:
        query = dict(request.query)
        try:
            after, limit = int(query.pop("after", 0)), int(query.pop("limit", PAGE))
        except ValueError as error:
            return _json(400, wire.error(str(error), "invalid_request_error", None))
        foreign = sorted(query.keys() - FILTERS)
        if foreign or limit < 1:
            message = f"Filters: after, limit (1 or more), {', '.join(sorted(FILTERS))}; got {', '.join(foreign)}."
            return _json(400, wire.error(message, "invalid_request_error", None))
        entries = self.ledger(after=after, limit=limit + 1, **query)
        page = entries[:limit]
        following = page[-1].n if len(entries) > limit else None
        return _json(200, orjson.dumps({"entries": page, "next_after": following}))

    async def _forget(self, request: web.BaseRequest) -> web.StreamResponse:
        self.forget()
        return web.Response(status=204)

    async def _healthz(self, request: web.BaseRequest) -> web.StreamResponse:
        return _json(200, b'{"status":"ok"}')


FILTERS = frozenset({"model", "run", "outcome", "digest", "fault", "idempotency_key", "request_id"})
"""Entry fields that GET /ledger filters by."""


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")
