"""Goes on with planned work, ticks of schedules and batches: any model worker does what is due (ADRs 0119 and 0120)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import Final

from ..steps.runtime import Runtime

_LOOK: Final = 10.0
"""Seconds between two looks of a worker that has seen no planned work yet."""


class PlannedWork:
    """The planned work of all tenants, as one worker sees it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._schedules = asyncio.Event()
        self._batches = asyncio.Event()

    def wake(self) -> None:
        """Look now: something was planned."""
        self._schedules.set()
        self._batches.set()

    async def run(self) -> None:
        """Carry out what is due, for ever; a worker that ends begins nothing more."""
        runtime = self._runtime
        while not await self._anything():
            self._schedules.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._schedules.wait(), _LOOK)
        # Most installations have nothing planned, and do without the use cases. Not on the loop: that takes a while.
        await asyncio.to_thread(import_module, "palaver.operations.planned")
        from palaver.operations.planned import carry_out

        woken = self._schedules, self._batches
        await carry_out(runtime.store, runtime.settings, runtime.publisher, woken, runtime.draining)
        await asyncio.Event().wait()

    async def _anything(self) -> bool:
        for kind in (self._runtime.store.ticks, self._runtime.store.batch_progress):
            due, upcoming = await kind.due()
            if due or upcoming is not None:
                return True
        return False
