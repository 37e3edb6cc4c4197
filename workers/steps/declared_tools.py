"""Reads which tools other workers have: with each heartbeat, and where a step lacks one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from palaver.store import Store
from palaver.store.redis.single_flight import Fresh, SingleFlight

from ..sources import Elsewhere, Toolbox

log = logging.getLogger("palaver.workers.steps.declared_tools")

_LASTS: Final = 1.0
"""Seconds for which a reading is used by who lacks nothing."""


class DeclaredTools:
    """The declarations of other workers as the store has them, in the `Elsewhere` of a toolbox. No step waits for a
    reading, unless it lacks a tool."""

    def __init__(
        self, store: Store, tools: Toolbox, elsewhere: Elsewhere, in_use: Callable[[], Collection[str]]
    ) -> None:
        """``in_use`` lists the tools that are offered to models at the moment."""
        self._store = store
        self._tools = tools
        self._elsewhere = elsewhere
        self._in_use = in_use
        self._reads = SingleFlight(1)
        self._fresh = Fresh(self._reads, self._read, _LASTS)
        self._noted: set[str] = set()
        self._differing: frozenset[str] = frozenset()

    async def look(self) -> None:
        """Read them, unless that has just been done. Raises what the store raises."""
        await self._fresh.get()

    async def has(self, tool: str) -> bool:
        """Tell whether another worker has a ``tool`` by now. Raises what the store raises."""
        return tool in await self._fresh.get(lambda elsewhere: tool in elsewhere)

    async def close(self) -> None:
        """Read no more."""
        await self._reads.close()

    async def _read(self) -> Elsewhere:
        self._elsewhere.take(await self._store.tools.declared(self._elsewhere.sets), self._in_use())
        self._note_inline()
        self._note_versions()
        return self._elsewhere

    def _note_versions(self) -> None:
        """Say which tools workers have in several versions: each call is for those that have the one that was shown."""
        for name in sorted(self._elsewhere.differing - self._differing):
            log.warning("tool %s: workers have several versions of it, as while a deployment rolls", name)
        self._differing = self._elsewhere.differing

    def _note_inline(self) -> None:
        """Say which tools would be quicker if their module were here."""
        here = {tool.name for tool in self._tools.declarations}
        inline = {tool.name for each in self._elsewhere.sets.values() for tool in each.tools if tool.inline}
        for name in sorted(inline - here - self._noted):
            self._noted.add(name)
            log.warning("tool %s is inline, but its module is not in PALAVER_INLINE_TOOLS: its calls are steps", name)
