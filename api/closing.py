"""The end of the process, of which streams and long polls are told at once, and the end of what they wait with."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_PATIENCE: Final = 0.1
"""Seconds after which a task that was cancelled is cancelled again."""


@contextmanager
def closing_on_signals(closing: asyncio.Event) -> Iterator[None]:
    """Set ``closing`` on SIGTERM and SIGINT, then do what was done before.

    uvicorn tells an application only after all connections have ended, and a stream ends when its run does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}

    def tell(number: int, where: FrameType | None) -> None:
        loop.call_soon_threadsafe(closing.set)
        if callable(before[number]):
            before[number](number, where)

    for number, handler in before.items():
        # Only where a server listens already: elsewhere, in a test or a REPL, Ctrl-C is not ours.
        if callable(handler) and handler is not signal.default_int_handler:
            signal.signal(number, tell)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is tell:
                signal.signal(number, handler)


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they are done: before Python 3.12, a wait_for below them may swallow a cancel."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_PATIENCE)
    await asyncio.gather(*tasks, return_exceptions=True)
