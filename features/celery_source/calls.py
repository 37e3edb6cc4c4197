"""A call of a task: it is sent once, and its end is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from palaver.celery.reports import ENDS
from palaver.errors import RetryableToolError, ToolError
from palaver.errors.sentences import IN_DOUBT
from palaver.tools import ToolContext
from workers.sources.containment import is_cancel

from .applications import Application, NotSent, Order

T = TypeVar("T")

_FIRST: Final = 0.05
"""Seconds between the first two looks for reports."""
_LAST: Final = 0.5
"""Seconds between two looks at last."""
_SLOWER: Final = 1.5
"""The factor from one pause to the next."""
_PATIENCE: Final = 1.5
"""Seconds for a task to be revoked: a call ends soon when it is cancelled."""


class TaskCalls:
    """Calls of the tasks of one application. Its connections are those of one thread."""

    def __init__(self, name: str, application: Application) -> None:
        self._application = application
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"celery.{name}")

    async def there(self, function: Callable[[], T]) -> T:
        """The answer of a function that blocks, in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def close(self) -> None:
        """Close the connections, without waiting for them."""
        self._thread.submit(self._application.close)
        self._thread.shutdown(wait=False)

    async def outcome(self, order: Order, context: ToolContext) -> object:
        """Send the task, unless that was done, and wait for its end; return its result.

        Raises:
            RetryableToolError: the broker cannot be reached, so nothing was sent.
            ToolError: the task failed or was revoked.
        """
        try:
            await self.there(partial(self._application.send, order))
            return await self._end_of(order, context)
        except NotSent as error:
            raise RetryableToolError(f"the broker could not be reached ({error}): nothing was sent") from None
        except asyncio.CancelledError as error:
            # Also while it is sent: the thread revokes it when it has done so.
            if is_cancel(error):
                await self.revoke(order)
            raise

    async def revoke(self, order: Order) -> None:
        """Revoke the task, if that does not take long."""
        revoking = asyncio.ensure_future(self.there(partial(self._application.revoke, order)))
        await asyncio.wait([revoking], timeout=_PATIENCE)

    async def _end_of(self, order: Order, context: ToolContext) -> object:
        pause, shown = _FIRST, 0
        while True:
            reports = await self.there(partial(self._application.look, order.task_id))
            if end := next((report for report in reports if report["state"] in ENDS), None):
                return _result(end)
            _show(reports, context)
            if len(reports) != shown:
                pause, shown = _FIRST, len(reports)
            await asyncio.sleep(pause)
            pause = min(_LAST, pause * _SLOWER)


def _show(reports: Sequence[Mapping[str, Any]], context: ToolContext) -> None:
    match reports[-1] if reports else {}:
        case {"state": "started", "worker": worker}:
            context.progress(f"runs at {worker}")
        case {"state": "retry", "error": error, "when": when}:
            context.progress(f"{error}: is tried again" + (f" at {when}" if when else ""))


def _result(end: Mapping[str, Any]) -> object:
    match end:
        case {"state": "success", "result": result}:
            return result
        case {"state": "failure", "error": "WorkerLostError"}:
            raise ToolError(f"The process that ran the task was lost.{IN_DOUBT}")
        case {"state": "failure", "error": error, "message": message}:
            raise ToolError(f"the task failed: {error}: {message}")
        case {"state": "revoked", "expired": True}:
            raise ToolError("the task was not begun in time, so nothing was done")
        case {"state": "revoked", "terminated": False}:
            raise ToolError("the task was revoked before it began")
    raise ToolError(f"The task was revoked.{IN_DOUBT}")
