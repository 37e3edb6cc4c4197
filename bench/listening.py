"""A client that watches and costs little: it counts what comes, and takes nothing apart.

`python -m bench.listening PORT SOCKETS`, with the requests on stdin as a JSON list: SOCKETS server-sent streams of
each. Says when all have begun, and when each has had the events that hold the word END, then how many frames came.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Final

import orjson

from bench.wires import WatchRequest
from features.stack.ports import HOST

END: Final = "<the-last-delta>"
"""The text of the last delta of each run."""
_NEEDLE: Final = END.encode()
_FRAME: Final = b"\ndata: "
_STEPS: Final = (b"step.started", b"start-step", b"STEP_STARTED", b"response.in_progress", b'"role":"assistant"')
"""The beginning of a step, as each wire says it; of a chat completion it is that of all."""


class _Watcher(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self.frames = 0
        loop = asyncio.get_running_loop()
        self.began: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        seen = self._tail + data
        self.frames += seen.count(_FRAME)
        if not self.began.done() and any(begun in seen for begun in _STEPS):
            self.began.set_result(None)
        if _NEEDLE in seen:
            self._transport.close()
        # What is not counted yet may have begun here; a needle is shorter, too.
        keep = len(_NEEDLE) - 1
        self._tail = seen[-keep:]
        self.frames -= self._tail.count(_FRAME)

    def connection_lost(self, exc: Exception | None) -> None:
        self.frames += self._tail.count(_FRAME)
        if not self.began.done():
            self.began.set_exception(exc or ConnectionError("the stream ended before it began"))
        self.ended.set_result(None)


async def _listen(port: int, sockets: int, requests: list[WatchRequest]) -> int:
    loop = asyncio.get_running_loop()
    watchers: list[_Watcher] = []
    for request in requests:
        for _ in range(sockets):
            written = request.written(f"{HOST}:{port}")
            _, watcher = await loop.create_connection(partial(_Watcher, written), HOST, port)
            watchers.append(watcher)
    await asyncio.gather(*(watcher.began for watcher in watchers))
    print("began", flush=True)
    await asyncio.gather(*(watcher.ended for watcher in watchers))
    return sum(watcher.frames for watcher in watchers)


def main() -> None:
    """Watch, and say what came."""
    port, sockets = int(sys.argv[1]), int(sys.argv[2])
    requests = [WatchRequest(*request) for request in orjson.loads(sys.stdin.buffer.read())]
    frames = asyncio.run(_listen(port, sockets, requests))
    print("frames", frames, flush=True)


if __name__ == "__main__":
    main()
