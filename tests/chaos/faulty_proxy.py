"""A way to a server on this machine that can be made as bad as a network gets, at run time and from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable

from features.stack.ports import HOST
from tests.chaos.looped import Looped

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER: whoever closes sends RST, and drops what it has not sent."""
_UNDER_WAY = 256
"""How many pieces a connection holds that are late."""


class FaultyProxy(Looped):
    """Forwards to `upstream`, a port; a change of it holds for new connections. Without orders it changes nothing else;
    a fault lasts until it is taken back.

    latency     seconds by which each piece is late, in both directions
    losing      the chance that an answer is lost after the command went through, and its connection with it; taken for
                each piece that comes back, which is mostly one answer or one pipeline of answers
    close_after bytes of answers after which a connection is closed in good order (FIN); None: never
    blackhole   bytes vanish and nobody is told. A connection that lost some stays dead when the fault is taken back
    stalled     bytes wait, and come when the fault is taken back

    With `tls` clients have to speak TLS. `lost`, `closed` and `resets` count what was done, by connection.
    """

    def __init__(self, upstream: int, chance: random.Random | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = upstream
        self._chance = chance or random.Random(0)
        self._tls = tls
        self._flows: set[_Flow] = set()
        self._flowing: asyncio.Event
        self.latency = 0.0
        self.losing = 0.0
        self.close_after: int | None = None
        self.blackhole = False
        self.lost = 0
        self.closed = 0
        self.resets = 0
        self.port = 0

    @property
    def redis_url(self) -> str:
        """What PALAVER_REDIS_URL wants, if it leads to a Redis."""
        return f"redis://{HOST}:{self.port}/0"

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

    def _ask(self, order: Callable[[], None]) -> None:
        """Run `order` on the loop, and wait until it has taken effect."""

        async def obey() -> None:
            order()

        asyncio.run_coroutine_threadsafe(obey(), self._loop).result(10)

    @contextlib.asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
        self._flowing = asyncio.Event()
        self._flowing.set()
        server = await asyncio.start_server(self._connect, HOST, 0, ssl=self._tls, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        yield
        server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flow = _Flow(writer)
        self._flows.add(flow)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                answers, flow.upstream = await asyncio.open_connection(HOST, self.upstream)
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
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)
        leaving = asyncio.create_task(self._leave(source, under_way, answers=answers))
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                while data := await self._arrival(under_way):
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
        finally:
            leaving.cancel()

    async def _leave(
        self, source: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]], *, answers: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if answers and self._chance.random() < self.losing:
                    self.lost += 1
                    break
                await under_way.put((self._loop.time() + self.latency, data))
        await under_way.put((0.0, b""))

    async def _arrival(self, under_way: asyncio.Queue[tuple[float, bytes]]) -> bytes:
        """What arrives next; nothing after the end."""
        at, data = await under_way.get()
        if (early := at - self._loop.time()) > 0:
            await asyncio.sleep(early)
        await self._flowing.wait()
        return data


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
                # One half may have broken on its own just now.
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()

    def end(self) -> None:
        """Close what is open; the client's end in good order if that was begun."""
        if not self.client.is_closing():
            self.client.transport.abort()
        if self.upstream is not None:
            self.upstream.transport.abort()
