"""The server itself: routes, start and stop, on the caller's event loop or in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

try:
    import orjson
    from aiohttp import web
except ImportError as error:
    raise ImportError("the fake provider needs aiohttp and orjson: pip install 'palaver[testing]'") from error

from . import wire
from .apis import APIS
from .completions import Completions
from .exchanges import Exchanges, Observer, Unobserved
from .grammar import known

BACKLOG = 4096
"""Connections that may wait to be accepted: a bench opens its connections all at once."""
STOP_AFTER = 0.1
"""Seconds that open requests get when the server stops; one that hangs would never end by itself."""
MODELS = ("echo", "say-20", "tool-3", "parallel-2-2+use-each", "echo+429-1", "tokens-100+rate-20")
"""The models that GET /v1/models shows: examples, since every sentence of the grammar is a model."""


class FakeProvider:
    """A provider of models, steered by their names (see the package docstring).

    `port` 0 takes a free port. With `api_key`, other keys get 401. An `observer` sees what is asked, and may refuse it;
    `exchanges` go on where they are. Use it as an async context manager on the running loop, or in a thread of its own:
    `with FakeProvider.running() as provider:`. It starts once. Starting raises OSError when the port is taken.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        observer: Observer | None = None,
        exchanges: Exchanges | None = None,
    ) -> None:
        self._host = host
        self._port = port
        counted = exchanges or Exchanges()
        self._completions = [Completions(api, counted, observer or Unobserved(), api_key) for api in APIS]
        self._runner: web.ServerRunner | None = None
        self.routes: dict[tuple[str, str], Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            **{("POST", api.path): handler.answer for api, handler in zip(APIS, self._completions, strict=True)},
            ("GET", "/v1/models"): self._models,
            ("GET", "/healthz"): self._healthz,
        }

    @classmethod
    @contextmanager
    def running(cls, **options: Any) -> Iterator[Self]:
        """One in a thread with its own event loop. Options and errors are those of the class."""
        server = cls(**options)
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

        async def serve() -> None:
            stop = asyncio.Event()
            try:
                async with server:
                    started.set_result((asyncio.get_running_loop(), stop))
                    await stop.wait()
            except OSError as error:
                started.set_exception(error)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="fake-provider", daemon=True)
        thread.start()
        loop, stop = started.result()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(
            web.Server(self._route, handler_cancellation=True, access_log=None),
            shutdown_timeout=STOP_AFTER,
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, backlog=BACKLOG).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handler in self._completions:
            handler.stopping = True
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """The address of the server: `/healthz` is below it."""
        return f"http://{self._host}:{self._port}"

    @property
    def base_url(self) -> str:
        """The base URL for an OpenAI client; Anthropic's takes `url`."""
        return f"{self.url}/v1"

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = self.routes.get((request.method, request.path))
        if handler is None:
            message = f"Unknown request URL: {request.method} {request.path}."
            return json_answer(404, wire.error(message, "invalid_request_error", "unknown_url"))
        return await handler(request)

    async def _models(self, request: web.BaseRequest) -> web.StreamResponse:
        if not any(handler.authorised(request) for handler in self._completions):
            return json_answer(*self._completions[0].unauthorised())
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "palaver"} for name in MODELS]
        return json_answer(200, orjson.dumps({"object": "list", "data": data, "directives": known()}))

    async def _healthz(self, request: web.BaseRequest) -> web.StreamResponse:
        return json_answer(200, b'{"status":"ok"}')


def json_answer(status: int, body: bytes) -> web.Response:
    """An answer in JSON."""
    return web.Response(status=status, body=body, content_type="application/json")
