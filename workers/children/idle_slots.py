"""Reports of a tools worker for its places that have no process yet.

A child reports itself. Until the first call there is none, so its main process says which tools there are, and how many
calls it takes. That is rare, so it opens a connection of its own each time; a worker whose places are all taken reports
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from palaver.config.settings import settings
from palaver.store import Store
from palaver.store.fleet.fleet import WorkerReport
from palaver.tools import ToolSet

from .told_tools import ToldTools

log = logging.getLogger("palaver.workers.children.idle_slots")

_PATIENCE = 1.0
"""Seconds for Redis to answer; everything else of the main process waits meanwhile."""


class IdleSlots:
    """The vacant places of a tools worker, as the store knows them."""

    def __init__(
        self, worker: str, queues: Sequence[str], tools: ToolSet, refused: Callable[[], tuple[str, ...]] = tuple
    ) -> None:
        self._worker = worker
        self._queues = tuple(queues)
        self._tools = tools
        self._refused = refused
        self._reported = 0

    def tell(self, vacant: int, told: ToldTools) -> None:
        """Report that there are so many, with the tools that a child has ``told`` of, or that there are none any more.
        The report is repeated before it is forgotten."""
        if not vacant and not self._reported:
            return
        self._tools = told.newest(self._tools)
        try:
            asyncio.run(self._tell(vacant))
            self._reported = vacant
        except Exception as away:
            log.warning("the store is not told of %d places for tools: %s", vacant, type(away).__name__)

    async def _tell(self, vacant: int) -> None:
        async with asyncio.timeout(_PATIENCE), Store.connect(settings()) as store:
            if not vacant:
                await store.fleet.leave(self._worker)
                return
            await store.queues.publish(self._queues)
            await store.tools.publish(self._tools, self._queues)
            await store.fleet.report(
                WorkerReport(
                    id=self._worker,
                    queues=self._queues,
                    in_flight=0,
                    capacity=vacant,
                    draining=False,
                    tools=self._tools.digest,
                    refused=self._refused(),
                )
            )
