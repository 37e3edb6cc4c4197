"""Work of features that is due at a time. Model workers do it, by the rules of the API."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, classify
from palaver.feature import brought
from palaver.operations.backend import Backend, Publishing
from palaver.operations.planning_rules import PlanningBackend
from palaver.store import Store

D = TypeVar("D")
_log: Final = logging.getLogger("palaver.planned")
_LOOK: Final = 10.0
"""Seconds until the next look while there are no rules, and the most between two looks: the process that has taken
something may end."""
_OTHERS: Final = 1.0
"""The longest time between two looks while something is due that this process cannot carry out."""
_SHORTEST: Final = 0.01
_AGAIN: Final = 5.0
"""The same, if one could not be had."""
_DENIED: Final = 60.0
"""The same, if that is for an unforeseen reason: each is a traceback in the log."""


class Planned(ABC, Generic[D]):
    """Work of one kind that is due at a time, by the rules of a backend. Any number of processes look at it at once."""

    @abstractmethod
    async def due(self) -> tuple[list[D], float | None]:
        """Return what is due, and the seconds until the next one is; None if none will be.

        Raises what Redis raises, and StoreUnavailable.
        """

    @abstractmethod
    async def attend(self, due: D) -> bool:
        """Carry one out. Return False if another process does, or none can."""

    async def look(self) -> float:
        """Carry out what is due. Return the seconds until there may be more. Raises as `due`."""
        due, upcoming = await self.due()
        # Other processes look at the same moment.
        random.shuffle(due)
        if any(await asyncio.gather(*map(self.attend, due))):
            return 0.0
        return min(_OTHERS if due else _LOOK, _LOOK if upcoming is None else max(_SHORTEST, upcoming))


Kind = Callable[[Backend], Planned[Any]]


def kinds() -> tuple[Kind, ...]:
    """Return the kinds of planned work that are installed."""
    return tuple(brought("planned"))


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
