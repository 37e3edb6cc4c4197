"""A way to a server on this machine that can be made as bad as a network gets, at run time and from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from palaver.testing.ports import HOST

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER: whoever closes sends RST, and drops what it has not sent."""


class Way:
    """Forwards to `port`. Without orders it changes nothing; a fault lasts until it is taken back.

    latency     seconds by which each piece is late, in both directions
    losing      the chance that an answer is lost after the command went through, and its connection with it; taken for
                each piece that comes back, which is mostly one answer or one pipeline of answers
    close_after bytes of answers after which a connection is closed in good order (FIN); None: never
    blackhole   bytes vanish and nobody is told. A connection that lost some stays dead when the fault is taken back
    stalled     bytes wait, and come when the fault is taken back

    With `tls` clients have to speak TLS. `lost`, `closed` and `resets` count what was done, by connection.
    """

    def __init__(self, port: int, chance: random.Random | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._upstream = port
        self._chance = chance or random.Random(0)
        self._tls = tls
        self._flows: set[_Flow] = set()
        self._flowing: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self.latency = 0.0
        self.losing = 0.0
        self.close_after: int | None = None
        self.blackhole = False
        self.lost = 0
        self.closed = 0
        self.resets = 0
        self.port = 0

    @property
    def connections(self) -> int:
        """Clients that are connected now."""
        return len(self._flows)

    @property
    def stalled(self) -> bool:
        """Whether bytes wait."""
        return not self._flowing.is_set()

    @stalled.setter
    def stalled(self, stalled: bool) -> None:
        change = self._flowing.clear if stalled else self._flowing.set
        self._ask(change)

    def reset(self) -> int:
        """Break all connections with RST, at both ends; how many there were."""
        before = self.resets

        def reset_all() -> None:
            for flow in tuple(self._flows):
                flow.reset()
                self.resets += 1

        self._ask(reset_all)
        return self.resets - before

    def cut(self) -> None:
        """All connections there are go dead without a word; new ones work."""

        def deaden() -> None:
            for flow in self._flows:
                flow.dead = True

        self._ask(deaden)

    def heal(self) -> None:
        """No faults any more."""
        self.latency, self.losing, self.close_after, self.blackhole = 0.0, 0.0, None, False
        self.stalled = False

    @contextlib.contextmanager
    def open(self) -> Iterator[Way]:
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

    def _ask(self, order: Callable[[], None]) -> None:
        """Run `order` on the loop, and wait until it has taken effect."""
        done: Future[None] = Future()

        def obey() -> None:
            order()
            done.set_result(None)

        self._loop.call_soon_threadsafe(obey)
        done.result(10)

    async def _serve(self, started: Future[asyncio.Event]) -> None:
        stop = asyncio.Event()
        self._loop, self._flowing = asyncio.get_running_loop(), asyncio.Event()
        self._flowing.set()
        server = await asyncio.start_server(self._connect, HOST, 0, ssl=self._tls, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        started.set_result(stop)
        await stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flow = _Flow(writer)
        self._flows.add(flow)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                answers, flow.upstream = await asyncio.open_connection(HOST, self._upstream)
                ways = [
                    asyncio.create_task(self._forward(flow, reader, flow.upstream, answers=False)),
                    asyncio.create_task(self._forward(flow, answers, writer, answers=True)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
        finally:
            self._flows.discard(flow)
            flow.end()

    async def _forward(
        self, flow: _Flow, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await source.read(65536):
                if answers and self._chance.random() < self.losing:
                    self.lost += 1
                    return
                if self.latency:
                    await asyncio.sleep(self.latency)
                await self._flowing.wait()
                flow.dead |= self.blackhole
                if flow.dead:
                    continue
                if answers and self.close_after is not None:
                    data = data[: self.close_after - flow.answered]
                sink.write(data)
                await sink.drain()
                flow.answered += len(data) if answers else 0
                if self.close_after is not None and flow.answered >= self.close_after:
                    self.closed += 1
                    sink.close()
                    return


class _Flow:
    """One client's connection and its other half."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.upstream: asyncio.StreamWriter | None = None
        self.answered = 0
        """Bytes that came back to the client."""
        self.dead = False
        """Bytes of it have vanished."""

    def reset(self) -> None:
        """RST, both ways."""
        for writer in (self.client, self.upstream):
            if writer is not None:
                connection: socket.socket = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()

    def end(self) -> None:
        """Close what is open; the client's end in good order if that was begun."""
        if not self.client.is_closing():
            self.client.transport.abort()
        if self.upstream is not None:
            self.upstream.transport.abort()
