"""Waits and functions of client tools on asyncio. `palaver.client.threads` is the same for threads."""

from __future__ import annotations

import asyncio
import inspect
from types import TracebackType
from typing import Self

from palaver.client.functions import FunctionCall
from palaver.schemas.actions import ToolOutput

sleep = asyncio.sleep


class AsyncFunctionCalls:
    """Functions that are called beside everything else, each in a task. Leaving cancels those under way."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[ToolOutput], FunctionCall] = {}

    def begin(self, call: FunctionCall) -> None:
        """Call a function; one that is no coroutine gets a thread."""
        self._tasks[asyncio.create_task(_output(call))] = call

    async def finished(self) -> tuple[FunctionCall, ToolOutput]:
        """Wait for one of the calls that were begun."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        task = done.pop()
        return self._tasks.pop(task), task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _output(call: FunctionCall) -> ToolOutput:
    try:
        function = call.bound()
        if call.function.is_async:
            return call.output(await function())
        result = await asyncio.to_thread(function)
        return call.output(await result if inspect.isawaitable(result) else result)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        # Who waits for the run may have been cancelled; the function may raise the same by itself.
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        return call.failed(error)
