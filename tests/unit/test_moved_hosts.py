"""The host of a provider, of a webhook or of an HTTP tool moves: its name leads to another address, at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from aiohttp.abc import AbstractResolver, ResolveResult

from workers.connections.pool import open_pool


class _Moving(AbstractResolver):
    """Every name leads to this port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        return [ResolveResult(hostname=host, host="127.0.0.1", port=self.port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        return


@asynccontextmanager
async def _serving(body: bytes) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_what_refuses_is_looked_up_anew() -> None:
    """An address is kept for a minute; a model call has its five attempts in a few seconds."""
    async with _serving(b"new") as new:
        async with _serving(b"old") as old:
            names = _Moving(old)
            client = httpx.AsyncClient(transport=open_pool(names))
            for _ in range(3):
                assert (await client.get("http://provider.test/")).text == "old"
        names.port = new
        refused = 0
        for _ in range(3):
            try:
                assert (await client.get("http://provider.test/")).text == "new"
            except httpx.ConnectError:
                refused += 1
        assert (refused, names.asked) == (1, 2)
        await client.aclose()
