"""What stands between Palaver and a server, or a client: it passes on what is asked and answered, byte for byte."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

_OF_THE_CONNECTION: Final = frozenset({"connection", "content-length", "host", "transfer-encoding"})


@dataclass
class Relay:
    """Passes requests on to `upstream`. Who goes away is not answered any more, there either."""

    upstream: str
    prefix: str = field(default="", kw_only=True)
    """What it takes off the beginning of each path."""

    @contextmanager
    def listening(self, port: int) -> Iterator[None]:
        """On this port, in a thread with its own event loop."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(port, started)), daemon=True)
        thread.start()
        loop, stop = started.result(10)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(10)

    async def _serve(self, port: int, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        stop = asyncio.Event()
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
        ) as self._session:
            server = web.Server(self._answer, handler_cancellation=True, access_log=None)
            runner = web.ServerRunner(server, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port, backlog=4096, reuse_address=True).start()
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            await _end(runner, server)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._pass_on(request, await request.read())

    async def _pass_on(
        self, request: web.BaseRequest, body: bytes, hear: Callable[[bytes], None] = lambda data: None
    ) -> web.StreamResponse:
        """Ask upstream, and answer what that does, while it does. `hear` gets each piece before the client does."""
        url = URL(f"{self.upstream}{request.raw_path.removeprefix(self.prefix)}", encoded=True)
        headers = _kept(request)
        async with self._session.request(
            request.method, url, data=body or None, headers=headers, allow_redirects=False
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_kept(answer))
            await response.prepare(request)
            async for data in answer.content.iter_any():
                hear(data)
                await response.write(data)
            return response


async def _end(runner: web.ServerRunner, server: web.Server) -> None:
    """Close every connection: also those of who takes nothing any more, and what is accepted in this moment."""
    transports = [each.transport for each in server.connections]
    await runner.cleanup()
    await _turns()
    transports += [each.transport for each in server.connections]
    for transport in transports:
        if transport is not None:
            transport.abort()
    await _turns()


async def _turns() -> None:
    """asyncio makes a connection that it has accepted, and ends one that was aborted, in turns of the loop to come."""
    for _ in range(3):
        await asyncio.sleep(0)


def _kept(message: web.BaseRequest | aiohttp.ClientResponse) -> dict[str, str]:
    return {name: value for name, value in message.headers.items() if name.lower() not in _OF_THE_CONNECTION}
