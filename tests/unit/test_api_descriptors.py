"""The listening socket: few connections in a turn of the loop, and none of them with Nagle's algorithm."""

from __future__ import annotations

import asyncio
import socket
from itertools import pairwise

from api.edge.descriptors import PacedListener, capacity
from tests.waiting import aeventually


async def test_connections_are_taken_a_few_at_a_time_and_send_at_once() -> None:
    listener = PacedListener(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    made: list[asyncio.Transport] = []
    lost: list[object] = []

    class Seen(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            made.append(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(self)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Seen, sock=listener, backlog=100)
    async with server:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(50)]
        turns = [0]

        def all_made() -> bool:
            turns.append(len(made))
            return len(made) == 50

        await aeventually(all_made, every=0)
        assert max(after - before for before, after in pairwise(turns)) <= 2
        for transport in made:
            accepted = transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for client in clients:
            client.close()
        await aeventually(lambda: len(lost) == 50)


def test_a_process_keeps_descriptors_for_itself() -> None:
    assert capacity(1) == 1
    assert capacity(10**9) < 10**9
