"""`python -m bench.hostile_sockets --port N --path PATH --count N [--key KEY]`: a burst of OpenHands' sockets.

All connect at once and never read, and their receive buffers are small: what they are sent stays with the server.
Without a key half of them are let go after a second. Says when it is ready, and how many connected.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import socket
from typing import Final

from features.stack.ports import HOST

_RECEIVE: Final = 4096
"""Bytes of a receive buffer."""
_PATIENCE: Final = 1.0
_PAUSE: Final = 0.2
"""Seconds between being ready and the burst."""


async def _connect(port: int, head: bytes) -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (HOST, port))
    await loop.sock_sendall(client, head)
    return client


async def _burst(port: int, path: str, count: int, key: str | None) -> None:
    login = f"X-Session-API-Key: {key}\r\n" if key else ""
    head = (
        f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{login}\r\n"
    )
    print("ready", flush=True)
    await asyncio.sleep(_PAUSE)
    made = await asyncio.gather(*(_connect(port, head.encode()) for _ in range(count)), return_exceptions=True)
    clients = [each for each in made if isinstance(each, socket.socket)]
    print("connected", len(clients), flush=True)
    if key is None:
        await asyncio.sleep(_PATIENCE)
        for client in clients[::2]:
            client.close()
    await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and connect."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile_sockets")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--key")
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_burst(given.port, given.path, given.count, given.key))


if __name__ == "__main__":
    main()
