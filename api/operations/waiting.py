"""Reading a run, and waiting until it has come far enough or the time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from palaver.errors import NoRoom, UnknownRun
from palaver.limits import beyond
from palaver.models import Run
from palaver.tasks import end

from .backend import Backend

T = TypeVar("T")


class Until(StrEnum):
    """How far a run must have come."""

    TERMINAL = "terminal"
    """It has ended."""
    ACTION = "action"
    """It has ended, or it waits for somebody: an approval, a client's output, a resume."""
    CHANGE = "change"
    """Its status, its step or what it waits for, an action included, is another than when the request came."""

    def reached(self, before: Run, now: Run) -> bool:
        """Whether ``now`` is far enough for who saw ``before``."""
        if now.status.terminal:
            return True
        match self:
            case Until.TERMINAL:
                return False
            case Until.ACTION:
                return now.needs_somebody
            case Until.CHANGE:
                return _place(now) != _place(before)


def _place(run: Run) -> tuple[object, ...]:
    return run.status, run.step, run.attempt, run.waiting, run.pausing, run.pending_actions


def admit_watcher(backend: Backend) -> None:
    """See that there is room for one more who waits for news of a run.

    Raises:
        NoRoom: ``too_many_watchers``.
    """
    if not may_watch(backend):
        raise NoRoom("too_many_watchers", f"this process serves {backend.settings.max_watchers} of them")


@contextmanager
def place_of_watcher(backend: Backend) -> Iterator[None]:
    """The same, and the place is kept: for who has something to read before it begins to watch.

    Raises:
        NoRoom: ``too_many_watchers``.
    """
    admit_watcher(backend)
    backend.store.feeds.watching += 1
    try:
        yield
    finally:
        backend.store.feeds.watching -= 1


def may_watch(backend: Backend) -> bool:
    """Whether there is room for one more who waits for news of a run."""
    if backend.store.feeds.watching < backend.settings.max_watchers:
        return True
    beyond("watchers")
    return False


async def read_run(backend: Backend, run_id: str, *, until: Until = Until.ACTION, seconds: float = 0) -> Run:
    """The run as it is now; with ``seconds``, once it is far enough or after that time.

    Raises:
        UnknownRun: there is no such run (any more).
        NoRoom: too many wait already.
    """
    run = await backend.run(run_id)
    if seconds <= 0 or until.reached(run, run):
        return run
    admit_watcher(backend)
    return await await_run(backend, run, until, seconds)


async def await_run(backend: Backend, run: Run, until: Until, seconds: float) -> Run:
    """``run`` once it is far enough, or as it is after ``seconds`` or when the process is told to end."""
    if until.reached(run, run):
        return run
    return await in_time(backend, _follow(backend, run, until), seconds) or await backend.run(run.id)


async def in_time(backend: Backend, wait: Coroutine[Any, Any, T], seconds: float) -> T | None:
    """What comes of a wait; None if nothing has after ``seconds``, or when the process is told to end."""
    waiting, closing = asyncio.create_task(wait), asyncio.create_task(backend.closing.wait())
    try:
        await asyncio.wait([waiting, closing], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        await end(waiting, closing)


async def _follow(backend: Backend, run: Run, until: Until) -> Run:
    async with aclosing(backend.store.feeds.watch(run.id, after=run.last_event_id)) as events:
        async for event in events:
            # Deltas change nothing about the run; None means that a message may have been lost.
            if event is None or not event.type.endswith(".delta"):
                now = await backend.run(run.id)
                if until.reached(run, now):
                    return now
    raise UnknownRun(run.id)
