"""The pool of a tools worker: Celery's prefork pool, which here notices a dead child at once, and ends those whose
tools go too far."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool

from palaver.settings import settings

from .child_leases import Ending
from .guard import Guard
from .output import Pipes
from .slots import Slots

_LOOK: Final = 0.25
"""Seconds between two looks at the children; a look is one waitpid a child, and some reads of /proc for busy ones."""

slots: Final = Slots()
pipes: Final = Pipes(slots)
"""Both are found by children where their parent has made them."""
_guard: Guard | None = None


class _Children(AsynPool):  # type: ignore[misc]  # Celery is untyped
    """Celery looks when a child closes its end of a pipe, which is before it can be waited for, and then after 5 s.

    So on a busy machine a child that died is missed for those 5 s, and its call with it.
    """

    @property
    def timers(self) -> dict[Callable[[], Any], float]:
        """What the hub calls again and again."""
        return {self.maintain_pool: _LOOK, self._look: _LOOK}

    def _create_worker_process(self, i: int) -> Any:
        pipes.open(i)
        child = super()._create_worker_process(i)
        pipes.started(i)
        return child

    def _look(self) -> None:
        if _guard is not None:
            jobs = [job for job in tuple(self._cache.values()) if job._worker_pid and not job.ready()]
            _guard.look(
                {child.pid: child.index for child in tuple(self._pool) if child.pid},
                {job._worker_pid: job._time_accepted for job in jobs},
            )


class ToolPool(TaskPool):  # type: ignore[misc]  # Celery is untyped
    """Runs `tool_step` in child processes."""

    Pool = _Children

    def on_start(self) -> None:
        """Start the children."""
        global _guard
        # What is imported stays, and children share it. To look through it for garbage would copy it into each of them,
        # and take most of the time in which this process ends.
        gc.collect()
        gc.freeze()
        _guard = Guard(slots, settings())
        super().on_start()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call it: the main process has no loop besides the consumer's."""
        function()


def why_ended(pid: int) -> Ending | None:
    """Why this worker ended a child of its own; None if it did not."""
    return _guard.why(pid) if _guard is not None else None
