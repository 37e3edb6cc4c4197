"""One read for all who want the same at the same time, or within a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sized
from typing import Any, Final, Generic, TypeVar

from palaver.processes.tasks import end
from palaver.processes.turns import Turns
from palaver.store.redis.reach import reach

T = TypeVar("T")
S = TypeVar("S", bound=Sized | None)

_TURN: Final = 4
"""Tasks that are woken at once. Each has something to do then, and others want the loop, too."""
_AGAIN: Final = 0.25
"""Seconds for which something is used that is not what was looked for: it may be there by now."""


async def yielding(many: Iterable[T]) -> AsyncIterator[T]:
    """Each of ``many``, with a turn of the loop for others now and then."""
    for number, item in enumerate(many, 1):
        yield item
        if number % _TURN == 0:
            await asyncio.sleep(0)


class SingleFlight:
    """Reads of which no more than ``at_once`` are under way, and of the same thing one.

    Who asks while one is under way shares the next with all that ask meanwhile: a value is always read after it was
    asked for. No read is shared with those of another reach.
    """

    def __init__(self, at_once: int) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._waiters: dict[Hashable, list[asyncio.Future[Any]]] = {}
        """The waiters for reads that have not begun, by key."""
        self._under_way: dict[Hashable, asyncio.Event] = {}
        """Set when it is over."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turns = Turns(_TURN)

    async def read(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of ``make``, or of another caller's ``make`` with the same ``key``. Raises what that
        raises."""
        key = (reach(), key)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.get(key)
        if waiters is None:
            waiters = self._waiters[key] = []
            task = asyncio.create_task(self._read(key, make))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiters.append(answer)
        return await answer

    async def read_now(self, key: Hashable, make: Callable[[], Awaitable[T]], *, patience: float | None = None) -> T:
        """As `read`, for reads that are mostly not shared. A caller that is alone makes it without a task for that,
        which would cost as much; of many who come at once, the first shares with none of them. Raises TimeoutError for
        a caller that is not alone and has no answer after ``patience`` seconds."""
        place = (reach(), key)
        if place in self._waiters or place in self._under_way or self._slots.locked():
            async with asyncio.timeout(patience):
                return await self.read(key, make)
        me = asyncio.current_task()
        assert me is not None
        over = self._under_way[place] = asyncio.Event()
        self._tasks.add(me)
        try:
            async with self._slots:
                return await make()
        finally:
            self._tasks.discard(me)
            del self._under_way[place]
            over.set()

    async def _read(self, key: Hashable, make: Callable[[], Awaitable[object]]) -> None:
        waiters = self._waiters[key]
        try:
            try:
                value, error = await self._in_turn(key, make), None
            except Exception as raised:
                value, error = None, raised
            for answer in waiters:
                await self._turns.take()
                if answer.done():
                    continue
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(value)
        finally:
            for answer in waiters:
                answer.cancel()

    async def _in_turn(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        if key in self._under_way:
            await self._under_way[key].wait()
        async with self._slots:
            # A caller from here on may know of something that this read does not see.
            del self._waiters[key]
            over = self._under_way[key] = asyncio.Event()
            try:
                return await make()
            finally:
                del self._under_way[key]
                over.set()

    async def close(self) -> None:
        """End what is under way."""
        await end(*self._tasks)


class Fresh(Generic[S]):
    """Something that is read again once it is older than ``seconds``, or as long as there is nothing."""

    def __init__(self, reads: SingleFlight, read: Callable[[], Awaitable[S]], seconds: float) -> None:
        self._reads = reads
        self._read = read
        self._seconds = seconds
        self._value: tuple[S, float] | None = None
        """The value that was read, and when."""

    async def get(self, fits: Callable[[S], bool] = lambda _: True) -> S:
        """As it was a moment ago. One that does not fit is read again, a few times a second at most. Raises what
        reading raises."""
        if self._value is not None:
            value, read_at = self._value
            age = time.monotonic() - read_at
            if age < (self._seconds if fits(value) else _AGAIN):
                return value
        value = await self._reads.read(self, self._read)
        nothing = value is not None and not value
        self._value = None if nothing else (value, time.monotonic())
        return value
