"""The pool of a tools worker: Celery's prefork pool, which here has no child before there is a call for it, notices a
dead one at once, and ends those whose tools go too far."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool

from palaver.config.settings import settings
from palaver.processes.garbage import share_loaded
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.tools.declared import ToolDeclaration

from . import descriptors, processes
from .child_answers import Answers, garbled
from .child_leases import Ending
from .guard import Guard
from .idle_slots import IdleSlots
from .output import Pipes
from .slots import Slots
from .told_tools import ToldTools

log = logging.getLogger("palaver.workers.children.prefork")

_LOOK: Final = 0.25
"""Seconds between two looks at the children; a look is one waitpid a child, and some reads of /proc for busy ones."""

_READ_BY_CHILDREN: Final = (AgentSpec, Message, ToolCall, ToolDeclaration)
"""Models that each call reads: what reads them is built before there is a child, once for all of them."""
slots: Final = Slots()
pipes: Final = Pipes(slots)
told_tools: Final = ToldTools()
"""Children find all three where their parent has made them."""
inherited: frozenset[descriptors.Descriptor] = frozenset()
"""Descriptors that this process had open before it began to fork its newest child, which looks them up here."""
_guard: Guard | None = None
idle_slots: IdleSlots | None = None
"""Made when the worker knows its tools, before its pool starts."""


class _Children(AsynPool):  # type: ignore[misc]  # Celery is untyped
    """The children: none at first, one more whenever there are more calls than children, up to ``processes``. A place
    that has had a child always has one. A child that sends something that is no message is replaced, with the pipes of
    its place.

    Celery looks when a child closes its end of a pipe, which is before it can be waited for, and then after 5 s. So on
    a busy machine a child that died is missed for those 5 s, and its call with it.
    """

    ResultHandler = Answers

    def __init__(self, **options: Any) -> None:
        self._most: int = options.pop("processes")
        super().__init__(processes=0, **options)

    @property
    def timers(self) -> dict[Callable[[], Any], float]:
        """The functions that the hub calls again and again, with their intervals."""
        return {self.maintain_pool: _LOOK, self._look: _LOOK, self._tell: settings().heartbeat}

    def register_with_event_loop(self, hub: Any) -> None:
        """Celery's own; who is ready can be given work, and says so."""
        super().register_with_event_loop(hub)
        self._tell()

    def _track_child_process(self, proc: Any, hub: Any) -> None:
        # Celery has let go of one whose end it has seen; until that can be waited for it is a child still, and a worker
        # that got a new connection meanwhile would end by it.
        if getattr(proc, "_sentinel_poll", 0) is None:
            del proc._sentinel_poll
        super()._track_child_process(proc, hub)

    def apply_async(self, *args: Any, **options: Any) -> Any:
        """Celery's own, with one more child if all have something to do."""
        job = super().apply_async(*args, **options)
        self._grow_to_need()
        return job

    def _grow_to_need(self) -> None:
        # A call may be delivered again while it waits for a child, and while a child makes it. One child is enough for
        # all of its deliveries; but those that come while it is made take places from others until some child has read
        # them.
        jobs = [(job.correlation_id.rpartition(":")[0], bool(job._worker_pid)) for job in self._cache.values()]
        made, waiting = ({call for call, accepted in jobs if accepted is which} for which in (True, False))
        calls = made | waiting | ({""} if made & waiting else set())
        if len(calls) > self._processes < self._most:
            # Not `grow`, which has the worker take more calls than it has places: they are counted already.
            self._processes += 1
            try:
                self.on_grow(1)
                self._create_worker_process(self._avail_index())
            except OSError as error:
                self._processes -= 1
                log.warning("no process can be started for a call yet: %s", error)

    def _tell(self) -> None:
        if idle_slots is not None:
            idle_slots.tell(self._most - self._processes, told_tools)

    def _create_worker_process(self, i: int) -> Any:
        global inherited
        if not all(model.__pydantic_complete__ for model in _READ_BY_CHILDREN):
            for model in _READ_BY_CHILDREN:
                model.model_rebuild()
            share_loaded()
        pipes.open(i)
        inherited = descriptors.open_files()
        try:
            child = super()._create_worker_process(i)
        except OSError:
            self._forget(i)
            raise
        pipes.started(i)
        return child

    def _forget(self, i: int) -> None:
        """billiard keeps a child that could not be started, and cannot bury it."""
        for child in [child for child in self._pool if child.index == i]:
            if child._popen is not None:
                processes.kill([child.pid])
            else:
                self._pool.remove(child)
                self._queues |= {queues: None for queues, owner in self._queues.items() if owner is child}

    def _look(self) -> None:
        self._grow_to_need()
        self._result_handler.look()
        if _guard is not None:
            jobs = [job for job in tuple(self._cache.values()) if job._worker_pid and not job.ready()]
            _guard.look(
                {child.pid: child.index for child in tuple(self._pool) if child.pid},
                {job._worker_pid: job._time_accepted for job in jobs},
                garbled={child.pid for child in tuple(self._pool) if child.pid and garbled(child)},
            )

    def process_flush_queues(self, child: Any) -> None:
        """Read the messages that a child had sent before it was gone."""
        if not garbled(child):
            super().process_flush_queues(child)

    def _process_cleanup_queues(self, child: Any) -> None:
        if garbled(child) and not child.dead:
            # Its pipes, with what is in them, are not for the next child.
            child.dead = True
            if self.destroy_queues(self._find_worker_queues(child), child):
                self._queues[self.create_process_queues()] = None
        super()._process_cleanup_queues(child)


class ToolPool(TaskPool):  # type: ignore[misc]  # Celery is untyped
    """Runs `tool_step` in child processes."""

    Pool = _Children

    def on_start(self) -> None:
        """Be ready to start children."""
        global _guard
        share_loaded()
        _guard = Guard(slots, settings())
        super().on_start()

    def on_close(self) -> None:
        """Begin to stop: none is to come any more."""
        if idle_slots is not None:
            idle_slots.tell(0, told_tools)
        super().on_close()

    @property
    def num_processes(self) -> int:
        """Calls that it takes at once, whether they have a child yet or not: after a lost connection Celery has a
        consumer take no more than this."""
        return int(self.limit)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call it: the main process has no loop besides the consumer's."""
        function()


def why_ended(pid: int) -> Ending | None:
    """Why this worker ended a child of its own; None if it did not."""
    return _guard.why(pid) if _guard is not None else None
