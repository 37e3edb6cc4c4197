"""The end of asyncio tasks."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_AGAIN: Final = 0.1
"""Seconds after which a task that was cancelled is cancelled again."""


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they are done: before Python 3.12, a wait_for below them may swallow a cancel."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)
