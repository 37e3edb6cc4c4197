"""Goes on with planned work: any model worker does what is due (ADR 0118)."""

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
        self._woken = [asyncio.Event()]
        """One for each loop that waits."""

    def wake(self) -> None:
        """Look now: something was planned."""
        for woken in self._woken:
            woken.set()

    async def run(self) -> None:
        """Carry out what is due, for ever; a worker that ends begins nothing more."""
        runtime = self._runtime
        (woken,) = self._woken
        while not await runtime.store.planning.anything():
            woken.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), _LOOK)
        # Most installations have nothing planned, and do without the use cases. Not on the loop: that takes a while.
        await asyncio.to_thread(import_module, "palaver.operations.planned")
        from palaver.operations.planned import carry_out, kinds

        installed = kinds()
        self._woken = [asyncio.Event() for _ in installed]
        await asyncio.gather(
            *(
                carry_out(kind, runtime.store, runtime.settings, runtime.publisher, woken, runtime.draining)
                for kind, woken in zip(installed, self._woken, strict=True)
            )
        )
        await asyncio.Event().wait()
