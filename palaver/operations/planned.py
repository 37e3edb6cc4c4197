"""Work that is due at a time: ticks of schedules, and batches that go on (ADRs 0119 and 0120). Model workers do it, by
the rules of the API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, classify
from palaver.operations.backend import Publishing
from palaver.operations.batches.runner import BatchRunner
from palaver.operations.planning_rules import PlanningBackend
from palaver.operations.schedules.scheduler import Scheduler
from palaver.store import Store

_log: Final = logging.getLogger("palaver.planned")
_LOOK: Final = 10.0
"""Seconds until the next look while there are no rules."""
_AGAIN: Final = 5.0
"""The same, if one could not be had."""
_DENIED: Final = 60.0
"""The same, if that is for an unforeseen reason: each is a traceback in the log."""


async def carry_out(
    store: Store, settings: Settings, publisher: Publishing, woken: Sequence[asyncio.Event], closing: asyncio.Event
) -> None:
    """Look for what is due, again and again, until ``closing``: once in ten seconds where there is nothing, and when
    one is ``woken``, for ticks the first and for batches the second."""

    async def loop(kind: type[Scheduler] | type[BatchRunner], event: asyncio.Event) -> None:
        backend = PlanningBackend(store, settings, publisher)
        try:
            await _carry_out(kind, backend, event, closing)
        finally:
            await backend.close()

    of_schedules, of_batches = woken
    await asyncio.gather(loop(Scheduler, of_schedules), loop(BatchRunner, of_batches))


async def _carry_out(
    kind: type[Scheduler] | type[BatchRunner], backend: PlanningBackend, woken: asyncio.Event, closing: asyncio.Event
) -> None:
    while not closing.is_set():
        woken.clear()
        try:
            now = await backend.now()
            pause = _LOOK if now is None else await kind(now).look()
        except Exception as error:
            away = classify(error).error_class is ErrorClass.STORAGE
            pause = _AGAIN if away else _DENIED
            if not away:
                _log.exception("what is to happen at a time cannot be looked at")
        with suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), pause)
