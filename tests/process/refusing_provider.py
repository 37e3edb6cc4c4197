"""A provider that everybody meets at once: it refuses a crowd with one Retry-After, and notes who does not wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web


@dataclass
class RefusingProvider:
    """Keeps the first `crowd` requests until all are there and refuses them together; for `retry_after` seconds whoever
    comes is refused, too. Afterwards it passes requests on to `upstream`, a model server."""

    upstream: str
    crowd: int
    retry_after: int
    refused_at: float | None = None
    """When the crowd was refused; `time.monotonic`."""
    asked_at: list[float] = field(default_factory=list)
    """When each request came."""
    passed: int = 0

    @property
    def open_at(self) -> float:
        """When the provider said that it could be asked again."""
        return (self.refused_at or time.monotonic()) + self.retry_after

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
        self._complete, stop = asyncio.Event(), asyncio.Event()
        async with aiohttp.ClientSession() as self._session:
            runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        now = time.monotonic()
        self.asked_at.append(now)
        if len(self.asked_at) == self.crowd:
            self.refused_at = now
            self._complete.set()
        if len(self.asked_at) <= self.crowd:
            await self._complete.wait()
        if time.monotonic() < self.open_at:
            return web.json_response(
                {"error": {"message": "slow down", "code": "rate_limit_exceeded"}},
                status=429,
                headers={"Retry-After": str(self.retry_after)},
            )
        self.passed += 1
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with self._session.post(
            f"{self.upstream}{request.path}", data=await request.read(), headers=headers
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            return response
