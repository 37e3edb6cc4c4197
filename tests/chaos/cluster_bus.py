"""The bus between the servers of a cluster, which can be cut around one of them while clients still reach it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from features.stack.ports import HOST, free_port
from palaver.processes.tasks import end
from tests.chaos.looped import Looped

_PIECE: Final = 65_536


class ClusterBus(Looped):
    """Forwards what servers of a cluster say to each other, in both directions. Each speaks from an address of its own:
    `options_of` a number are the settings of that server.

    `alone` is the number of the server that hears nobody, and whom nobody hears; None when all do.
    """

    def __init__(self, servers: int) -> None:
        self.alone: int | None = None
        self._announced = [free_port() for _ in range(servers)]
        self._ports = [free_port() for _ in range(servers)]

    def options_of(self, number: int) -> dict[str, str]:
        """Return the settings with which a server speaks and is spoken to here."""
        return {
            "cluster-port": str(self._ports[number]),
            "cluster-announce-bus-port": str(self._announced[number]),
            "bind-source-addr": _address_of(number),
        }

    @contextlib.asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for number, port in enumerate(self._announced):

                async def connect(
                    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int = number
                ) -> None:
                    await self._forward(number, reader, writer)

                await stack.enter_async_context(await asyncio.start_server(connect, HOST, port))
            yield

    async def _forward(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer.get_extra_info("peername")[0], _address_of(number)}
        with contextlib.suppress(OSError):
            answers, upstream = await asyncio.open_connection(HOST, self._ports[number])
            ways = [asyncio.create_task(self._pass_on(ends, *way)) for way in ((reader, upstream), (answers, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await end(*ways)
                upstream.transport.abort()
        writer.transport.abort()

    async def _pass_on(self, ends: set[str], source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_PIECE):
                if self.alone is None or _address_of(self.alone) not in ends:
                    sink.write(data)
                    await sink.drain()


def _address_of(number: int) -> str:
    return f"127.0.1.{number + 1}"
