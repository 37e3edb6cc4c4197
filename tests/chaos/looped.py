"""What lives on an event loop of its own, in a thread, beside a test."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Self

from palaver.processes.tasks import end


class Looped(ABC):
    """`open` it, and ask it from any thread through `_loop`."""

    _loop: asyncio.AbstractEventLoop

    @abstractmethod
    def _living(self) -> AbstractAsyncContextManager[object]:
        """Around its life, on the loop; its tasks are cancelled before the end."""

    @contextlib.contextmanager
    def open(self) -> Iterator[Self]:
        """It lives until the end of the block."""
        started: Future[asyncio.Event] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._live(started)), daemon=True)
        thread.start()
        stop = started.result(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join(10)

    async def _live(self, started: Future[asyncio.Event]) -> None:
        self._loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._living():
            started.set_result(stop)
            await stop.wait()
            await end(*(asyncio.all_tasks() - {asyncio.current_task()}))
