"""Ends a process whose loop a tool holds up for so long that the leases of all its steps have run out.

Nothing else can: the loop does not come to it, and code in C may keep Python's lock. So it is a timer of the
interpreter's own (`faulthandler`), which needs neither, says where each thread is, and ends the process. A supervisor
starts it again.
"""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from palaver.processes.tasks import end

_STANDARD_ERROR = 2
"""The descriptor: Celery has another in the place of `sys.stderr`."""


@asynccontextmanager
async def watched(patience: float) -> AsyncIterator[None]:
    """Within the block, this process ends with status 1 once its loop has not come round for ``patience`` seconds."""

    async def turn() -> None:
        while True:
            faulthandler.dump_traceback_later(patience, exit=True, file=_STANDARD_ERROR)
            await asyncio.sleep(patience / 8)

    turning = asyncio.create_task(turn())
    try:
        yield
    finally:
        await end(turning)
        faulthandler.cancel_dump_traceback_later()
