"""The end of the process: streams and long polls hear of it at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def closing_on_signals(closing: asyncio.Event) -> Iterator[None]:
    """Set ``closing`` on SIGTERM and SIGINT, then do what the handlers before it did.

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
