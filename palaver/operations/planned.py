"""Work that is due at a time, in each API process: ticks of schedules, and batches that go on (ADRs 0119 and 0120)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from palaver.errors import ErrorClass, classify
from palaver.operations.backend import Backend
from palaver.operations.batches.runner import BatchRunner
from palaver.operations.schedules.scheduler import Scheduler

_log: Final = logging.getLogger("palaver.api")
_AGAIN: Final = 5.0
"""Seconds until the next look, if one could not be had."""
_DENIED: Final = 60.0
"""The same, if that is for a reason that nobody has foreseen: each is a traceback in the log."""


async def carry_out(backend: Backend) -> None:
    """Look for what is due, again and again, for ever: once in ten seconds where there is nothing."""
    schedules = _carry_out(Scheduler(backend), backend.schedules_changed)
    await asyncio.gather(schedules, _carry_out(BatchRunner(backend), backend.batches_changed))


async def _carry_out(looker: Scheduler | BatchRunner, changed: asyncio.Event) -> None:
    while True:
        changed.clear()
        try:
            pause = await looker.look()
        except Exception as error:
            away = classify(error).error_class is ErrorClass.STORAGE
            pause = _AGAIN if away else _DENIED
            if not away:
                _log.exception("what is to happen at a time cannot be looked at")
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), pause)
