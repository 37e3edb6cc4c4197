"""A loop that turns only while a test waits for a run, and stands still for calls that block.

So these are made in the thread of the test, and in no loop: as in production, and as Django's ORM wants it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from palaver.processes.tasks import end
from workers.sources.containment import ToolAnswer

T = TypeVar("T")


class SteppedLoop:
    """The loop of one test, made when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocking: asyncio.Queue[_BlockingCall] = asyncio.Queue()

    @property
    def turns(self) -> bool:
        """True within it."""
        return asyncio.get_running_loop() is self._loop

    async def call(self, function: Callable[[], ToolAnswer]) -> ToolAnswer:
        """Make a call that blocks, while the loop stands still. Raises what it raises."""
        call = _BlockingCall(function, asyncio.get_running_loop().create_future())
        self._blocking.put_nowait(call)
        return await call.answer

    def complete(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Turn until a coroutine is done, and return its result.

        Raises:
            RuntimeError: another loop turns in this thread.
        """
        if _is_in_a_loop():
            coroutine.close()
            raise RuntimeError("a loop runs in this test: await palaver_runs.arun(…), and run.agoes_on()")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(coroutine)
        while (call := self._loop.run_until_complete(self._next_call(task))) is not None:
            call.make()
        return task.result()

    async def _next_call(self, task: asyncio.Task[Any]) -> _BlockingCall | None:
        asking = asyncio.ensure_future(self._blocking.get())
        await asyncio.wait([task, asking], return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        asking.cancel()
        return None

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End what is left on it, do this as the ``last`` thing, and close it."""
        if self._loop is not None:
            self._loop.run_until_complete(_end_others())
            self._loop.run_until_complete(last())
            self._loop.close()
            self._loop = None


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _end_others() -> None:
    await end(*asyncio.all_tasks() - {asyncio.current_task()})


class _BlockingCall:
    """A call that is made between two turns of the loop."""

    def __init__(self, function: Callable[[], ToolAnswer], answer: asyncio.Future[ToolAnswer]) -> None:
        self._function = function
        self.answer = answer

    def make(self) -> None:
        """Make it."""
        try:
            result = self._function()
        except BaseException as error:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)
