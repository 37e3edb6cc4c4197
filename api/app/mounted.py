"""The API below a path of another ASGI application. It starts with the first request, or with that application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from inspect import isawaitable
from typing import Any, Final

from starlette.requests import HTTPConnection
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from palaver.config.mounting import Identify, Identity
from palaver.config.settings import Settings
from palaver.config.settings import settings as environment
from palaver.errors import ConfigurationError

from ..http.auth import routed_path
from ..http.problems import RETRY_AFTER, Problem
from ..http.sockets import FRAME, KNOWN
from ..kit.dialects import dialect_of, respond
from ..native import NATIVE
from .application import ApiApplication, create_app, require_redis
from .identities import IDENTITY, IdentityAccess
from .middleware import REFUSED, Access, request_id_of

_log: Final = logging.getLogger("palaver.api")


def mounted(identity: Identify | None, settings: Settings | None) -> Mounted:
    """Return the API for another application, with the callers that ``identity`` names, or those of keys."""

    def make() -> ApiApplication:
        here = settings or environment()
        require_redis(here)
        return create_app(here, access=Access if identity is None else IdentityAccess)

    return Mounted(make, identity)


class Mounted:
    """An application that is made and started in each event loop that first asks it."""

    def __init__(self, make: Callable[[], ApiApplication], identity: Identify | None) -> None:
        self._make = make
        self._identity = identity
        self._running: _Running | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            # Of a server that has it without an application around it.
            await Router(lifespan=self.lifespan).lifespan(scope, receive, send)
            return
        try:
            app = await self._started()
        except Exception as error:
            await _refuse(error, scope, receive, send)
            return
        # What the API notes of a request must not overwrite what the application around it has in ``request.state``.
        inner = {**scope, "state": {}}
        if self._identity is not None:
            inner[IDENTITY] = await self._asked(self._identity, app, scope)
        if scope["type"] == "websocket" and KNOWN not in scope.get("extensions", {}):
            send = _without_frames(send)
        await app(inner, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the API, and end it behind the block. Raises ConfigurationError for settings that do not fit."""
        await self._started()
        running = self._running
        assert running is not None
        try:
            yield
        finally:
            running.stop.set()
            await running.task

    def lifespan(self, app: Any) -> AbstractAsyncContextManager[None]:
        """The same as a ``lifespan`` of the application around it."""
        return self.running()

    async def _started(self) -> ApiApplication:
        running = self._running
        if running is None or running.loop is not asyncio.get_running_loop() or running.task.done():
            running = self._running = _Running(self._make)
        # One start for all who wait, which does not end with the request of one of them.
        return running.ready.result() if running.ready.done() else await asyncio.shield(running.ready)

    async def _asked(self, identify: Identify, app: ApiApplication, scope: Scope) -> Identity | None:
        path = routed_path(scope)
        dialect = dialect_of(path, app.state.dialects)
        if not app.speaks(dialect):
            await app.learn(dialect)
        if scope.get("method") == "OPTIONS" or app.state.access.opens(path, dialect):
            return None
        # What this raises is for the application around: it is its code, and its errors are answered alike.
        said = identify(HTTPConnection(scope))
        who: Any = await said if isawaitable(said) else said
        if who is not None and not isinstance(who, Identity):
            raise TypeError(
                f"identity of palaver.asgi has to return palaver.Identity or None, not {type(who).__name__}"
            )
        return who


class _Running:
    """One start of the application, until it is stopped or its event loop ends, which cancels all tasks."""

    def __init__(self, make: Callable[[], ApiApplication]) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.ready: Final[asyncio.Future[ApiApplication]] = self.loop.create_future()
        self.stop: Final = asyncio.Event()
        # Not in the context of the request that is first: it lives longer.
        self.task: Final = self.loop.create_task(self._run(make), name="palaver-mounted", context=Context())

    async def _run(self, make: Callable[[], ApiApplication]) -> None:
        try:
            app = await asyncio.to_thread(make)
            async with app.router.lifespan_context(app):
                self.ready.set_result(app)
                await self.stop.wait()
        except Exception as error:
            if self.ready.done():
                raise
            self.ready.set_exception(error)
            # All who waited may have gone.
            self.ready.exception()


async def _refuse(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer while the API cannot be started."""
    if isinstance(error, ConfigurationError):
        _log.error("the mounted API cannot start: %s", error)
        error = Problem("unavailable", "Its log says why.", headers={"Retry-After": str(RETRY_AFTER)})
    refused = {**scope, "state": {"request_id": request_id_of(None), "dialect": NATIVE}}
    answer = respond(error, HTTPConnection(refused))
    answer.headers["X-Request-Id"] = refused["state"]["request_id"]
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": REFUSED})
    else:
        await answer(refused, receive, send)


def _without_frames(send: Send) -> Send:
    """Return a way to a client whose server writes frames itself."""

    async def send_text(message: Message) -> None:
        if (frame := message.get(FRAME)) is not None:
            # Frames of a server have no mask: two bytes, those of a longer length, and the text.
            begins = {126: 4, 127: 10}.get(frame[1], 2)
            message = {"type": message["type"], "text": frame[begins:].decode()}
        await send(message)

    return send_text
