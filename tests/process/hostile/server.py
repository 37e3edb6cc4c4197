"""A server that plays bytes: whoever asks for the model `NAME` gets what the kind of that name yields."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson


class Then(Enum):
    """What becomes of the connection, other than being closed."""

    RESET = "reset"
    HANG = "hang"
    """It stays open, and silent, until the other side closes it."""


Pieces = Iterable[bytes | float | Then]
"""Bytes are sent, numbers are seconds of silence. A piece at a time: they may be without end."""


@dataclass(frozen=True)
class Asked:
    """What the worker sent."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def answered(self) -> bool:
        """Whether tools have answered already."""
        return bool(self.body["messages"][-1]["role"] == "tool")

    @property
    def key(self) -> str:
        """The key that came with it."""
        return self.headers["authorization"].removeprefix("Bearer ")


class HostileServer:
    """On a port of its own; `asked` counts the requests of each model."""

    def __init__(self, plays: Mapping[str, Callable[[Asked], Pieces]]) -> None:
        self._plays = plays
        self.asked: dict[str, int] = dict.fromkeys(plays, 0)
        self.port = 0

    @contextmanager
    def running(self) -> Iterator[HostileServer]:
        """In a thread with a loop of its own."""
        ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        thread.start()
        loop, over = ready.result()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()

    async def _serve(self, ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        playing: set[asyncio.Task[None]] = set()

        async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            playing.add(task)
            try:
                await self._play(reader, writer)
            except (OSError, EOFError, asyncio.CancelledError):
                pass
            finally:
                writer.transport.abort()
                playing.discard(task)

        over = asyncio.Event()
        server = await asyncio.start_server(play, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        ready.set_result((asyncio.get_running_loop(), over))
        await over.wait()
        server.close()
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().split("\r\n")[1:]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
            asked = Asked(headers, orjson.loads(await reader.readexactly(int(headers["content-length"]))))
            name = asked.body["model"]
            self.asked[name] += 1
            closed = asyncio.create_task(reader.read(1))
            try:
                for piece in self._plays[name](asked):
                    if piece is Then.RESET:
                        # What is closed without lingering is reset.
                        linger = struct.pack("ii", 1, 0)
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                        return
                    if piece is Then.HANG:
                        await closed
                        return
                    if isinstance(piece, float):
                        await asyncio.wait([closed], timeout=piece)
                    else:
                        assert isinstance(piece, bytes)
                        writer.write(piece)
                        await writer.drain()
                    if closed.done():
                        return
            finally:
                closed.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await closed
            writer.close()
            await writer.wait_closed()
            return
