"""Long polls: a run as it is once it has come far enough, or when the time is up."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from enum import StrEnum

from api.backend import Backend
from api.closing import end
from api.problems import ROOM_AFTER, Problem
from palaver.errors import UnknownRun
from palaver.lifecycle import RunStatus
from palaver.limits import beyond
from palaver.models import Run


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
                return now.status is RunStatus.PAUSED or bool(now.pending_actions)
            case Until.CHANGE:
                return _place(now) != _place(before)


def _place(run: Run) -> tuple[object, ...]:
    return run.status, run.step, run.attempt, run.waiting, run.pausing, run.pending_actions


def admit_watcher(backend: Backend) -> None:
    """See that there is room for one more who waits for news of a run.

    Raises:
        Problem: ``too_many_watchers``.
    """
    if not may_watch(backend):
        why = f"This process serves {backend.settings.max_watchers} of them."
        raise Problem("too_many_watchers", why, headers={"Retry-After": str(ROOM_AFTER)})


def may_watch(backend: Backend) -> bool:
    """Whether there is room for one more who waits for news of a run."""
    if backend.store.feeds.watching < backend.settings.max_watchers:
        return True
    beyond("watchers")
    return False


async def await_run(backend: Backend, run: Run, until: Until, seconds: float) -> Run:
    """``run`` once it is far enough, or as it is after ``seconds`` or when the process is told to end."""
    if seconds <= 0 or until.reached(run, run):
        return run
    reached = asyncio.create_task(_follow(backend, run, until))
    closing = asyncio.create_task(backend.closing.wait())
    try:
        await asyncio.wait([reached, closing], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if reached.done():
            return reached.result()
    finally:
        await end(reached, closing)
    return await backend.run(run.id)


async def _follow(backend: Backend, run: Run, until: Until) -> Run:
    async with aclosing(backend.store.feeds.watch(run.id, after=run.last_event_id)) as events:
        async for event in events:
            # Deltas change nothing about the run; None means that a message may have been lost.
            if event is None or not event.type.endswith(".delta"):
                now = await backend.run(run.id)
                if until.reached(run, now):
                    return now
    raise UnknownRun
