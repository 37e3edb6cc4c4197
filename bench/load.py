"""A client that costs little: on each of some connections, which are kept, the same request again and again.

`python -m bench.load PORT CONNECTIONS SECONDS`, with the requests on stdin as a JSON list, prints JSON: for how many
seconds it asked, and how many milliseconds each answer took. It reads of an answer no more than where it ends.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from typing import Final

import orjson

from features.stack.ports import HOST

_LENGTH: Final = b"content-length: "
_LEFT: Final = 5.0
"""Seconds that the last answers get."""


class _Asker(asyncio.Protocol):
    """One connection, on which a request is sent when the last one is answered."""

    def __init__(self, request: bytes, until: float) -> None:
        self._request, self._until = request, until
        self._read = bytearray()
        self.took: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._read += data
        head = self._read.find(b"\r\n\r\n")
        if head < 0 or len(self._read) < head + 4 + self._length(head):
            return
        now = time.perf_counter()
        if not self._read.startswith(b"HTTP/1.1 2"):
            self._end(RuntimeError(bytes(self._read[:400]).decode()))
            return
        self.took.append(1e3 * (now - self._asked_at))
        self._read.clear()
        if now < self._until:
            self._ask()
        else:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))

    def _ask(self) -> None:
        self._asked_at = time.perf_counter()
        self._transport.write(self._request)

    def _length(self, head: int) -> int:
        place = self._read.lower().index(_LENGTH, 0, head) + len(_LENGTH)
        return int(self._read[place : self._read.index(b"\r", place)])

    def _end(self, error: Exception | None = None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
        self._transport.close()


async def _ask(port: int, connections: int, seconds: float, requests: Sequence[bytes]) -> dict[str, object]:
    loop, begun = asyncio.get_running_loop(), time.perf_counter()
    askers = [_Asker(request, begun + seconds) for request in islice(cycle(requests), connections)]
    await asyncio.gather(*(loop.create_connection(partial(_same, asker), HOST, port) for asker in askers))
    async with asyncio.timeout(seconds + _LEFT):
        await asyncio.gather(*(asker.done for asker in askers))
    lasted = time.perf_counter() - begun
    return {"seconds": lasted, "took": [each for asker in askers for each in asker.took]}


def _same(asker: _Asker) -> _Asker:
    return asker


def main() -> None:
    """Ask, and say what came of it."""
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    requests = [each.encode() for each in orjson.loads(sys.stdin.buffer.read())]
    found = asyncio.run(_ask(port, connections, seconds, requests))
    sys.stdout.buffer.write(orjson.dumps(found))


if __name__ == "__main__":
    main()
