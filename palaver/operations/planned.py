"""Work that is due at a time: that of features. Model workers do it, by the rules of
the API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, classify
from palaver.feature import features
from palaver.operations.backend import Backend, Publishing
from palaver.operations.planning_rules import PlanningBackend
from palaver.store import Store

_log: Final = logging.getLogger("palaver.planned")
_LOOK: Final = 10.0
"""Seconds until the next look while there are no rules."""
_AGAIN: Final = 5.0
"""The same, if one could not be had."""
_DENIED: Final = 60.0
"""The same, if that is for an unforeseen reason: each is a traceback in the log."""


class Planned(Protocol):
    """Work of one kind that is due at a time, by the rules of a backend. Any number of processes look at it at once."""

    async def look(self) -> float:
        """Carry out what is due. Return the seconds until there may be more.

        Raises what Redis raises, and StoreUnavailable.
        """
        ...


Kind = Callable[[Backend], Planned]


def kinds() -> tuple[Kind, ...]:
    """Return the kinds of planned work that are installed."""
    return tuple(feature.load(feature.planned) for feature in features().values() if feature.planned)


async def carry_out(
    kind: Kind, store: Store, settings: Settings, publisher: Publishing, woken: asyncio.Event, closing: asyncio.Event
) -> None:
    """Look for what is due of one kind, again and again, until ``closing``: once in ten seconds where there is nothing,
    and when it is ``woken``."""
    backend = PlanningBackend(store, settings, publisher)
    try:
        await _carry_out(kind, backend, woken, closing)
    finally:
        await backend.close()


async def _carry_out(kind: Kind, backend: PlanningBackend, woken: asyncio.Event, closing: asyncio.Event) -> None:
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
