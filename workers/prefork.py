"""The pool of a tools worker: Celery's prefork pool, which here notices a dead child at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool

_LOOK: Final = 0.25
"""Seconds between two looks for dead children; a look is one waitpid a child."""


class _Children(AsynPool):  # type: ignore[misc]  # Celery is untyped
    """Celery looks when a child closes its end of a pipe, which is before it can be waited for, and then after 5 s.

    So on a busy machine a child that died is missed for those 5 s, and its call with it.
    """

    @property
    def timers(self) -> dict[Callable[[], Any], float]:
        """What the hub calls again and again."""
        return {self.maintain_pool: _LOOK}


class ToolPool(TaskPool):  # type: ignore[misc]  # Celery is untyped
    """Runs `tool_step` in child processes."""

    Pool = _Children
