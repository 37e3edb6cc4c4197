"""A cache of runs that were read lately: an unchanged one is not parsed again.

A client that waits for a run without a stream polls it, and mostly there is nothing new. Redis is asked each time. To
compare its answer with the last one takes a twentieth of the time that it takes to parse it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from palaver.schemas.models import Run
from palaver.store.redis.connection import Fields
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.limits import KIB

_RUNS: Final = 256
_LARGE: Final = 16 * KIB
"""Bytes from which on a run is not kept: 4 MiB are enough for all of them."""
Weighed = tuple[Run, int]
"""A run, and how many bytes it has."""


class KnownRuns:
    """The latest runs by id, each with the answers that it was made of. They are never changed."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, tuple[Sequence[bytes | None], Fields, Weighed]] = OrderedDict()

    def weighed(
        self,
        run_id: str,
        values: Sequence[bytes | None],
        steps: Fields,
        make: Callable[[Sequence[bytes | None], Fields], Weighed | None],
    ) -> Weighed | None:
        """Return the run of these answers: the one that was made of the same before, or a new one. Raises what ``make``
        raises."""
        known = self._runs.get(run_id)
        if known is not None and known[0] == values and known[1] == steps:
            return known[2]
        made = make(values, steps)
        if made is not None and made[1] < _LARGE and not is_behind(made[0]):
            self._runs[run_id] = (values, steps, made)
            self._runs.move_to_end(run_id)
            if len(self._runs) > _RUNS:
                self._runs.popitem(last=False)
        return made


def is_behind(run: Run) -> bool:
    """Tell whether it waits for another run of its conversation."""
    return run.waiting is not None and run.waiting.reason is WaitReason.CONVERSATION_BUSY
