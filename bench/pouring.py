"""`python -m bench.pouring --port N --ledger FILE`: a model server that streams words, thousands of streams at a time.

The scriptable model server (`features.fake_provider`) takes 30 us a chunk: 2,000 streams of 20 tokens a second
would have it use more than a core, and what is measured would wait for it. This one understands `tokens-N+rate-R` in
chat completions and nothing else. All streams share the bytes of their chunks and one clock, and a chunk is one write
to the socket. Its ledger has the lines that `bench.asked` reads.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import deque
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import IO, Final

import orjson

from bench.questions import Questions
from features.stack.ports import HOST

_TICK: Final = 0.005
"""Seconds; a chunk comes up to so much late."""
_HEAD: Final = b"\r\n".join(
    (b"HTTP/1.1 200 OK", b"Content-Type: text/event-stream", b"Transfer-Encoding: chunked", b"", b"")
)
_RUN: Final = re.compile(rb"x-palaver-run: *([^\r\n]+)", re.IGNORECASE)
_MODEL: Final = re.compile(r"tokens-(\d+)\+rate-([\d.]+)")


def text(tokens: int) -> str:
    """What an answer of so many tokens says: each word says which one it is."""
    return " ".join(f"word{i}" for i in range(tokens))


@lru_cache(maxsize=4)
def chunks(tokens: int) -> list[bytes]:
    """That answer as it goes on the wire: a chunk a token, then the end."""
    words = [f"word{i}" if i == 0 else f" word{i}" for i in range(tokens)]
    found = [_chunk({"delta": {"content": word}, "index": 0, "finish_reason": None}) for word in words]
    end = {"delta": {}, "index": 0, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": tokens + 10}
    return [*found, _chunk(end) + _chunk(None, usage) + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"]


def _chunk(choice: dict[str, object] | None, usage: dict[str, int] | None = None) -> bytes:
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "words"}
    body = orjson.dumps({**about, "choices": [] if choice is None else [choice], "usage": usage})
    return _framed(b"data: %b\n\n" % body)


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Clock:
    """Calls what is due, in ticks."""

    def __init__(self) -> None:
        self._due: dict[int, deque[Stream]] = {}

    def at(self, seconds: float, stream: Stream) -> None:
        """Have ``stream`` go on then (the loop's time)."""
        self._due.setdefault(int(seconds / _TICK) + 1, deque()).append(stream)

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        done = int(loop.time() / _TICK)
        while True:
            now = int(loop.time() / _TICK)
            for tick in range(done + 1, now + 1):
                for stream in self._due.pop(tick, ()):
                    stream.go_on()
            done = now
            await asyncio.sleep((now + 1) * _TICK - loop.time())


class Ledger:
    """The requests and their ends, in a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._numbers = count(1)

    def begin(self, run: str) -> int:
        """A request came; its number."""
        number = next(self._numbers)
        about = {"event": "start", "n": number, "run": run, "digest": "", "last_user": "", "at": time.time()}
        self._write(about)
        return number

    def end(self, number: int, outcome: str) -> None:
        """It is over."""
        now = time.time()
        left = now if outcome == "disconnected" else None
        self._write({"event": "end", "n": number, "ended_at": now, "outcome": outcome, "closed_by_client_at": left})

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(orjson.dumps(line) + b"\n")


class Stream(Questions):
    """A connection, with at most one answer at a time."""

    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger
        self._number: int | None = None

    def answer(self, head: bytes, model: str) -> None:
        """Begin a stream of the tokens that the model names, at their pace."""
        pace, run = _MODEL.fullmatch(model), _RUN.search(head)
        if pace is None or run is None:
            self._transport.close()
            return
        self._number = self._ledger.begin(run[1].decode())
        self._chunks, self._at, self._pause = chunks(int(pace[1])), 0, 1 / float(pace[2])
        self._transport.write(_HEAD)
        self._begun = asyncio.get_running_loop().time()
        self._clock.at(self._begun + self._pause, self)

    def go_on(self) -> None:
        """Write what is due."""
        if self._number is None:
            return
        self._transport.write(self._chunks[self._at])
        self._at += 1
        if self._at < len(self._chunks) - 1:
            self._clock.at(self._begun + (self._at + 1) * self._pause, self)
        else:
            self._transport.write(self._chunks[self._at])
            self._ledger.end(self._number, "answered")
            self._number = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._number is not None:
            self._ledger.end(self._number, "disconnected")
            self._number = None


async def serve(port: int, ledger: Path) -> None:
    """Serve until the process is ended."""
    with ledger.open("ab", buffering=0) as file:
        clock, told = Clock(), Ledger(file)
        await asyncio.get_running_loop().create_server(lambda: Stream(clock, told), HOST, port, backlog=4096)
        await clock.run()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m bench.pouring")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(serve(given.port, given.ledger))


if __name__ == "__main__":
    main()
