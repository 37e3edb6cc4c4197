"""Many watchers at once, on plain sockets in one loop: what each of them saw of its run."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

_END: Final = b"event: run.finished"
_KEPT: Final = 4096
"""Bytes of the end of a stream that are kept to look for its last event."""


async def watch(url: str, path: str) -> str:
    """``finished``: the stream ended behind ``run.finished``; else the status, or how it ended."""
    where = urlsplit(url)
    tail, status = b"", ""
    try:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            status = (await reader.readline())[9:12].decode()
            while piece := await reader.read(1 << 16):
                tail = (tail + piece)[-_KEPT:]
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
    except OSError as error:
        return type(error).__name__
    if status != "200":
        return status
    return "finished" if _END in tail and tail.endswith(b"0\r\n\r\n") else "ended early"


async def stall(url: str, path: str) -> socket.socket:
    """A watcher that never reads; the caller closes it."""
    where = urlsplit(url)
    client = socket.socket()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (where.hostname, where.port))
    await loop.sock_sendall(
        client, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    return client


async def crowd(url: str, paths: Iterable[str], stalled: Iterable[str] = ()) -> Counter[str]:
    """What became of a watcher of each of ``paths``, all at once, beside those of ``stalled``, which never read."""
    deaf = await asyncio.gather(*(stall(url, path) for path in stalled))
    try:
        return Counter(await asyncio.gather(*(watch(url, path) for path in paths)))
    finally:
        for client in deaf:
            client.close()
