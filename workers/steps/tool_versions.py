"""Versions of one tool, as workers have them while a deployment rolls: a call goes to a worker that declares its tool
as the model was shown it, or else to one whose schema its arguments fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from palaver.errors import ErrorClass, InvalidToolCall, classify
from palaver.schemas.models import ToolCall
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Postpone
from palaver.store import Store
from palaver.store.fleet.fleet import KNOWN_FOR
from palaver.store.fleet.tools import DeclaredSet
from palaver.store.redis.single_flight import Fresh, SingleFlight
from palaver.tools import ToolDeclaration
from palaver.tools.schemas import fitting
from palaver.vocabulary.lifecycle import WaitReason

from ..sources import Toolbox
from .capabilities import offered_again

log = logging.getLogger("palaver.workers.steps.tool_versions")

_LASTS: Final = 1.0
"""Seconds for which a reading is used."""
_LIVES: Final = 10.0
"""Seconds without a word of them after which a version has no workers, or three heartbeats, if that is longer."""
_PATIENCE: Final = 60.0
"""Seconds that a call waits for a worker with its own version where this one could make it as well."""


class ToolVersions:
    """The versions of its tools that other workers of the same queues have. Nothing is read for a call that was made by
    what this worker declares."""

    def __init__(self, store: Store, tools: Toolbox, queues: Sequence[str], heartbeat: float) -> None:
        self._store = store
        self._tools = tools
        self._queues = frozenset(queues)
        self._lives = timedelta(seconds=max(_LIVES, 3 * heartbeat))
        self._sets: Mapping[str, DeclaredSet] = {}
        self._reads = SingleFlight(1)
        self._fresh = Fresh(self._reads, self._read, _LASTS)
        self._noted: set[tuple[str, str | None]] = set()

    async def elsewhere(self, lease: Lease) -> Postpone | None:
        """Gives a call up for a worker whose version of the tool is that of the call; None if it is to be made here.

        A call that says of no version, as of an older worker, or whose arguments a person changed, goes by its
        arguments alone.
        """
        call = lease.answers
        if call.name not in self._tools or lease.kept is not None:
            return None
        here, shown = self._tools[call.name], None if lease.edited else lease.shown
        if shown == here.digest:
            return None
        fits = self._fits_here(call)
        if shown is None and fits:
            return None
        if lease.lacking_for <= (_PATIENCE if fits else KNOWN_FOR) and await self._is_elsewhere(call, shown, fits=fits):
            return Postpone(offered_again(lease.lacking_for), f"tool:{call.name}", WaitReason.NO_WORKER)
        self._note(call.name, shown, fits=fits)
        return None

    async def close(self) -> None:
        """Read no more."""
        await self._reads.close()

    async def _is_elsewhere(self, call: ToolCall, shown: str | None, *, fits: bool) -> bool:
        """Tell whether a worker has the version that was ``shown``, or one that the call fits if it does not fit here;
        or if that is not known."""
        try:
            versions = await self._living(call.name)
        except Exception as error:
            if classify(error).error_class is not ErrorClass.STORAGE:
                raise
            return True
        if shown is not None and any(version.digest == shown for version in versions):
            return True
        return not fits and any(_fits(version, call) for version in versions)

    async def _living(self, name: str) -> list[ToolDeclaration]:
        """The versions of a tool that other workers have now."""
        sets, here = await self._fresh.get(), self._tools[name].digest
        newest = max((declared.seen_at for declared in sets.values()), default=None)
        return [
            tool
            for declared in sets.values()
            if newest and declared.seen_at > newest - self._lives and declared.queues & self._queues
            for tool in declared.tools
            if tool.name == name and tool.digest != here
        ]

    async def _read(self) -> Mapping[str, DeclaredSet]:
        self._sets = await self._store.tools.declared(self._sets)
        return self._sets

    def _fits_here(self, call: ToolCall) -> bool:
        try:
            self._tools.check(call.name, call.arguments)
        except InvalidToolCall:
            return False
        return True

    def _note(self, name: str, shown: str | None, *, fits: bool) -> None:
        if (name, shown) in self._noted:
            return
        self._noted.add((name, shown))
        what = "such calls are made with the version of this worker" if fits else "a call does not fit this one"
        log.warning("tool %s: no worker has the version that a model was shown: %s", name, what)


def _fits(declared: ToolDeclaration, call: ToolCall) -> bool:
    try:
        fitting(declared, call.arguments)
    except InvalidToolCall:
        return False
    return True
