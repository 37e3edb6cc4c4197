"""A stable address in front of a server that may change, lag, or vanish without a word."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future

from palaver.testing.ports import HOST


class Address:
    """Forwards to the server on `upstream`; a change of it holds for new connections, see `cut`.

    `lag`: seconds that everything is on its way, in both directions. `silent`: bytes vanish, connections stay.
    """

    def __init__(self, upstream: int, *, lag: float = 0.0) -> None:
        self.upstream = upstream
        self.lag = lag
        self.silent = False
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """What PALAVER_REDIS_URL wants."""
        return f"redis://{HOST}:{self.port}/0"

    def cut(self) -> None:
        """Reset every connection; what was on its way is lost."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    @contextlib.contextmanager
    def open(self) -> Iterator[Address]:
        """Forward until the end of the block, from a thread."""
        started: Future[asyncio.Event] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        thread.start()
        stop = started.result(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join(10)

    async def _serve(self, started: Future[asyncio.Event]) -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(self._connect, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._loop = asyncio.get_running_loop()
        started.set_result(stop)
        await stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _cut(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            back, there = await asyncio.open_connection(HOST, self.upstream)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(there)
        ways = [asyncio.create_task(self._forward(*way)) for way in ((reader, there), (back, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for each in (writer, there):
                self._writers.discard(each)
                each.transport.abort()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def arrive() -> None:
            while True:
                at, data = await under_way.get()
                await asyncio.sleep(max(0.0, at - clock()))
                if not self.silent:
                    sink.write(data)

        arriving = asyncio.create_task(arrive())
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    under_way.put_nowait((clock() + self.lag, data))
        finally:
            arriving.cancel()
