"""A provider that goes away and comes back: it stands in front of a model server, and notes who asks meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp
import orjson
from aiohttp import web


@dataclass
class FailingProvider:
    """Passes requests on to `upstream`, but for those of the `models` that are out, or of all: these fail."""

    upstream: str
    status: int | None = 503
    """Of the answers that fail; None closes the connection without any."""
    out: bool = False
    """All models are."""
    goes_out_after: int | None = None
    """So many more requests are passed on, then it is out: however slow the test is."""
    models: set[str] = field(default_factory=set)
    failed: list[tuple[float, str]] = field(default_factory=list)
    """When each request came that failed (`time.monotonic`), and of which run."""
    passed: list[float] = field(default_factory=list)
    """When each other one came."""

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
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._session:
            runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port, backlog=4096, reuse_address=True).start()
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body, came = await request.read(), time.monotonic()
        if self.out or orjson.loads(body)["model"] in self.models:
            self.failed.append((came, request.headers.get("x-palaver-run", "")))
            if self.status is None:
                assert request.transport is not None
                request.transport.abort()
            return web.json_response(
                {"error": {"message": "out of service", "code": "down"}}, status=self.status or 500
            )
        self.passed.append(came)
        if self.goes_out_after is not None:
            self.goes_out_after -= 1
            if self.goes_out_after <= 0:
                self.out, self.goes_out_after = True, None
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with self._session.post(f"{self.upstream}{request.path}", data=body, headers=headers) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            return response
