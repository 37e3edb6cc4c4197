"""A way to Redis that breaks connections after a command went through and before its answer came back."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future

from palaver.testing.ports import HOST


class LossyWay:
    """Forwards to `port`. `losing` is the chance that an answer is lost, and its connection with it; 0 at first.

    The chance is taken for each piece that comes back, which is mostly one answer or one pipeline of answers.
    With `tls` clients have to speak TLS.
    """

    def __init__(self, port: int, chance: random.Random, tls: ssl.SSLContext | None = None) -> None:
        self._upstream = port
        self._chance = chance
        self._tls = tls
        self.losing = 0.0
        self.lost = 0
        self.port = 0

    async def _serve(self, started: Future[asyncio.Event]) -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(self._connect, HOST, 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        self._loop = asyncio.get_running_loop()
        started.set_result(stop)
        await stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            answers, commands = await asyncio.open_connection(HOST, self._upstream)
            ways = [
                asyncio.create_task(self._forward(reader, commands, loses=False)),
                asyncio.create_task(self._forward(answers, writer, loses=True)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                writer.transport.abort()
                commands.transport.abort()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, loses: bool) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await source.read(65536):
                if loses and self._chance.random() < self.losing:
                    self.lost += 1
                    return
                sink.write(data)
                await sink.drain()

    @contextlib.contextmanager
    def open(self) -> Iterator[LossyWay]:
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
