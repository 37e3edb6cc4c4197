"""A receiver of webhooks that does whatever a test wants, over plain sockets; and one that only keeps what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from palaver.processes.tasks import end

OK: Final = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


@dataclass(frozen=True)
class Received:
    """A request."""

    path: str
    headers: Mapping[str, str]
    body: bytes


Act = Callable[[Received, Writer], Coroutine[Any, Any, None]]


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of an answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Receiver:
    """What came, and what is done with each."""

    act: Act
    port: int = 0
    received: list[Received] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """Take a request, and do something with it."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Received(first.split(" ")[1], headers, body)
            self.received.append(request)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await self._until_gone(reader, self.act(request, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Who sends has gone, or the test ends.
            return
        finally:
            self.at_once -= 1
            writer.close()

    async def _until_gone(self, reader: Reader, act: Coroutine[Any, Any, None]) -> None:
        """Act, until that is done or the sender has gone."""
        acting, gone = asyncio.create_task(act), asyncio.create_task(reader.read(1))
        await asyncio.wait({acting, gone}, return_when=asyncio.FIRST_COMPLETED)
        await end(acting, gone)
        if not acting.cancelled():
            acting.exception()


async def take(_: Received, writer: Writer) -> None:
    """Take it."""
    writer.write(OK)
    await writer.drain()


@asynccontextmanager
async def receiving(act: Act = take) -> AsyncIterator[Receiver]:
    """A receiver that does so with each."""
    receiver = Receiver(act)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
