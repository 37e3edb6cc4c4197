"""Large pieces of answers are read one after the other, and others have the loop in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TypeVar

import pytest

from palaver.config.providers import Provider
from palaver.schemas.models import AgentSpec
from tests.unit.answering import Answering, complete
from tests.waiting import PATIENCE
from workers.models.model import ModelPort
from workers.models.reading_turns import LARGE, ReadingTurns

T = TypeVar("T")
READERS = 5
LONG = 2 * LARGE


def hold_the_loop() -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < 0.002:
        pass


def refuse() -> None:
    raise ValueError("no answer")


@asynccontextmanager
async def turns_of_the_loop() -> AsyncIterator[list[int]]:
    """How many turns the loop has made, in a list of one."""
    turns = [0]

    async def go_on() -> None:
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    beside = asyncio.create_task(go_on())
    yield turns
    beside.cancel()


async def test_others_have_the_loop_between_two_large_pieces() -> None:
    reading, read_at = ReadingTurns(), list[int]()
    async with turns_of_the_loop() as turns, asyncio.TaskGroup() as group:

        def note() -> None:
            read_at.append(turns[0])
            hold_the_loop()

        for _ in range(READERS):
            group.create_task(reading.read(LARGE, note))
    assert len(set(read_at)) == READERS
    assert all(later - earlier > 1 for earlier, later in pairwise(read_at))


async def test_a_small_piece_waits_for_no_turn() -> None:
    reading = ReadingTurns()
    large = asyncio.create_task(reading.read(LARGE, hold_the_loop))
    await asyncio.sleep(0)
    assert await reading.read(LARGE - 1, lambda: large.done()) is False
    await large


async def test_a_piece_that_is_refused_leaves_the_turn_to_the_next() -> None:
    reading = ReadingTurns()
    with pytest.raises(ValueError, match="no answer"):
        await reading.read(LARGE, refuse)
    async with asyncio.timeout(PATIENCE):
        assert await reading.read(LARGE, lambda: "next") == "next"


class Noted(ReadingTurns):
    """Turns that are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def read(self, size: int, act: Callable[[], T]) -> T:
        self.sizes.append(size)
        return await super().read(size, act)


def whole(text: bytes) -> tuple[bytes, bytes]:
    return b"application/json", b'{"choices":[{"finish_reason":"stop","message":{"content":"%b"}}]}' % text


def streamed(text: bytes) -> tuple[bytes, bytes]:
    line = b'data: {"choices":[{"finish_reason":"stop","delta":{"content":"%b"}}]}\n\n' % text
    return b"text/event-stream", line + b"data: [DONE]\n\n"


@pytest.mark.parametrize("wire", [whole, streamed])
async def test_a_large_answer_is_read_in_turn(
    wire: Callable[[bytes], tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, body = wire(b"x" * LONG)
    noted = Noted()
    async with Answering(
        b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(body), body)
    ) as server:
        port = ModelPort({"raw": Provider(base_url=server.url)})
        monkeypatch.setattr(port, "_turns", noted)
        reply = await complete(port, AgentSpec(model="raw/m"), time_left=60)
        await port.close()
    assert reply.content == "x" * LONG
    piece, answer = [size for size in noted.sizes if size >= LARGE][-2:]
    assert piece >= LARGE
    assert answer >= LONG
