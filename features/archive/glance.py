"""A glance at the archive: whether its database answers, how far it is behind, and how much it has.

It is looked at when it is asked for, once in some seconds, by one task of a process, whatever number of probes ask. A
database that does not answer keeps none of them waiting for longer than a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from palaver.errors import ConfigurationError
from palaver.schemas.archive import ArchiveState

from .backlog import Backlog
from .errors import SLOW, ArchiveAway, ArchiveRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from .database import Database

_FRESH: Final = 5.0
"""Seconds for which a look counts."""
_PATIENCE: Final = 1.0
"""Seconds after which a look that goes on is no reason to wait."""


class ArchiveGlance:
    """The state of the archive, as a process knows it."""

    def __init__(self, backlog: Backlog, database: Callable[[], Database]) -> None:
        self._backlog = backlog
        self._database = database
        self._look: asyncio.Task[None] | None = None
        self._begun = float("-inf")
        self._waiting, self._oldest = 0, 0.0
        self._away: str | None = None
        self._size: Mapping[str, int] = {}
        self._last_error: tuple[str, datetime] | None = None

    async def read(self) -> ArchiveState:
        """Return it, at most some seconds old. Raises what Redis raises."""
        now = asyncio.get_running_loop().time()
        if self._look is None or (self._look.done() and (now - self._begun >= _FRESH or self._look.exception())):
            self._begun, self._look = now, asyncio.create_task(self._ask())
            # If nothing asks any more, an error is of no interest.
            self._look.add_done_callback(lambda look: look.cancelled() or look.exception())
        await asyncio.wait({self._look}, timeout=max(0.0, self._begun + _PATIENCE - now))
        if self._look.done():
            self._look.result()
        else:
            self._failed(SLOW)
        error, at = self._last_error or (None, None)
        return ArchiveState(
            away=self._away,
            waiting=self._waiting,
            oldest_seconds=round(self._oldest, 3),
            **{name: self._size.get(name) for name in ("conversations", "runs", "entries", "bytes")},
            last_error=error,
            last_error_at=at,
        )

    async def _ask(self) -> None:
        self._waiting, self._oldest = await self._backlog.size(), await self._backlog.oldest()
        try:
            self._size, self._away = await self._database().size(), None
        except (ArchiveAway, ArchiveRefused, ConfigurationError) as error:
            self._failed(error.reason if isinstance(error, ArchiveAway) else str(error))

    def _failed(self, why: str) -> None:
        if self._away != why:
            self._last_error = why, datetime.now(UTC)
        self._away = why

    async def close(self) -> None:
        """End a look that goes on."""
        if self._look is not None and not self._look.done():
            self._look.cancel()
            with suppress(asyncio.CancelledError):
                await self._look
