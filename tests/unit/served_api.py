"""The API on a fake Redis, served on a port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from api.edge.gate import Gate
from api.edge.http11 import Http11
from palaver.config.settings import Settings
from tests.unit.api_world import SETTINGS, World, world
from tests.waiting import aeventually


@asynccontextmanager
async def served(settings: Settings = SETTINGS, **changes: Any) -> AsyncIterator[tuple[World, str, set[Any]]]:
    """An API that is served, its address, and the connections that are open."""
    async with world(settings, **changes) as api:
        config = uvicorn.Config(api.app, lifespan="off", ws="none", log_config=None)
        config.load()
        state, loop = ServerState(), asyncio.get_running_loop()
        gate = Gate(100, 64)
        server = await loop.create_server(lambda: Http11(config, state, {}, gate=gate), "127.0.0.1", 0)
        async with server:
            yield api, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", state.connections
            await aeventually(lambda: not state.connections)
