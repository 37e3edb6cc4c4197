"""An application with the API below one of its paths, whose users a cookie names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import uvicorn
from fastapi import FastAPI
from redis.asyncio import Redis
from starlette.requests import HTTPConnection
from starlette.routing import Mount
from starlette.websockets import WebSocket

from api.app import ApiApplication, create_app
from api.app.identities import IdentityAccess
from api.app.installed import dialects_of
from api.app.middleware import Access
from api.app.mounted import Mounted
from api.http.sockets import CloseCodes, send_frame, text_frame
from api.kit.dialects import Dialect
from palaver.config.mounting import Identify, Identity
from palaver.config.policy import OperatorPolicy
from palaver.config.settings import Settings
from palaver.operations import Backend
from palaver.store import Store
from tests.contract.clock import TurnedDatabase
from tests.store_server import Database
from tests.unit.api_world import (
    POLICIES,
    PROVIDERS,
    SETTINGS,
    RecordingPublisher,
)
from tests.unit.toy_dialect import TOY
from tests.waiting import PATIENCE, aeventually

DIALECTS: Final = dialects_of(("*",))
SPEAKING: Final = Dialect("speaking", "/speaking", TOY.respond, TOY.errors)
KEYED: Final = SETTINGS.model_copy(update={"api_keys": Settings(api_keys="ops=key-of-the-operators").api_keys})
OWN, SUB, OTHER = "http://127.0.0.1", "http://pages.127.0.0.1", "https://evil.example"


@SPEAKING.socket(
    "/speaking/{length}", scope="runs:read", key_in=lambda _: None, codes=CloseCodes(unauthenticated=4001, unknown=4004)
)
async def speak(backend: Backend, socket: WebSocket) -> None:
    """Says so many letters."""
    await send_frame(socket, text_frame(b"x" * int(socket.path_params["length"])))
    await asyncio.Event().wait()


@dataclass
class Site:
    """An application with the API at a path."""

    api: Mounted
    client: httpx.AsyncClient
    store: Store
    redis: Redis
    server: Database | TurnedDatabase
    publisher: RecordingPublisher

    def user(self, name: str | None, company: str = "") -> None:
        """Send these cookies from here on."""
        self.client.cookies.clear()
        if name is not None:
            self.client.cookies.update({"user": name, "company": company})


async def by_cookie(connection: HTTPConnection) -> Identity | None:
    """Who a cookie says it is, as an application does that trusts its users."""
    name = connection.cookies.get("user")
    return Identity(f"user:{name}", connection.cookies.get("company") or None) if name else None


@asynccontextmanager
async def site(
    identity: Identify | None = by_cookie, path: str = "/agents", settings: Settings = SETTINGS, **changes: Any
) -> AsyncIterator[Site]:
    """An application of FastAPI with the API at a path, below another one where the path has two parts."""
    server = changes.get("server") or Database()
    redis, publisher = server.client(), RecordingPublisher()
    store = Store(redis, settings)
    around: Callable[[Mounted], FastAPI] = changes.get("around") or (lambda api: FastAPI())
    access = Access if identity is None else IdentityAccess
    dialects = changes.get("dialects", DIALECTS)

    def make() -> ApiApplication:
        return create_app(settings, store, publisher, PROVIDERS, POLICIES, dialects, OperatorPolicy(), access)

    api = Mounted(changes.get("make", lambda made: made)(make), identity)
    app = around(api)
    outer, _, inner = path.rpartition("/")
    app.mount(f"/{inner}", api)
    if outer:
        app = FastAPI(routes=[Mount(outer, app)])
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield Site(api, client, store, redis, server, publisher)
    finally:
        server.connected = True
        if api._running is not None and not api._running.task.done():
            async with api.running():
                pass
        await store.close()


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """A server of uvicorn as it comes, in this loop: its address without the scheme."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="websockets-sansio"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve())
    await aeventually(lambda: server.started)
    try:
        yield "{}:{}".format(*server.servers[0].sockets[0].getsockname())
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, PATIENCE)
