"""Waits and functions of client tools in threads. `palaver.client.tasks` is the same on asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
import time
from types import TracebackType
from typing import Any, Self

from palaver.client.functions import FunctionCall
from palaver.schemas.actions import ToolOutput

sleep = time.sleep


class FunctionCalls:
    """Functions that are called beside everything else, each in a thread. Leaving does not wait for them."""

    def __init__(self) -> None:
        self._finished: queue.SimpleQueue[tuple[FunctionCall, ToolOutput]] = queue.SimpleQueue()

    def begin(self, call: FunctionCall) -> None:
        """Call a function in a thread of its own, one that does not keep the process from ending."""
        context = contextvars.copy_context()

        def run() -> None:
            self._finished.put((call, context.run(_output, call)))

        threading.Thread(target=run, name=call.function.name, daemon=True).start()

    def finished(self) -> tuple[FunctionCall, ToolOutput]:
        """Wait for one of the calls that were begun."""
        return self._finished.get()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _output(call: FunctionCall) -> ToolOutput:
    try:
        result = call.bound()()
        return call.output(asyncio.run(_result(result)) if inspect.isawaitable(result) else result)
    except BaseException as error:
        return call.failed(error)


async def _result(awaitable: Any) -> object:
    return await awaitable
