"""Reading a run, and waiting until it has come far enough or the time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from palaver.errors import NoRoom
from palaver.operations.backend import Backend, within_deadline
from palaver.operations.live_keys import InvalidKey, key_ended
from palaver.processes.tasks import end
from palaver.schemas.models import Run
from palaver.store.reading.feeds import watcher
from palaver.vocabulary.limits import count_exceeded

T = TypeVar("T")


class Until(StrEnum):
    """The condition that a wait for a run ends with."""

    TERMINAL = "terminal"
    """The run has ended."""
    ACTION = "action"
    """The run has ended, or waits for an action: an approval, a client's output, a resume."""
    CHANGE = "change"
    """The status of the run, its step, or what it waits for (an action included), is another than when the request
    came."""

    def reached(self, before: Run, now: Run) -> bool:
        """Tell whether ``now`` is far enough for a client that saw ``before``."""
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
    return run.status, run.step, run.attempt, run.waiting, run.pausing, run.all_pending


async def has_unheard_words(backend: Backend, run_id: str) -> bool:
    """Tell whether something was said into a run that its model has not heard yet."""
    return await within_deadline(backend.store.runs.has_unheard_words(run_id))


def admit_watcher(backend: Backend) -> None:
    """See that there is room for one more watcher of a run.

    Raises:
        NoRoom: ``too_many_watchers``.
    """
    if why := _full(backend):
        raise NoRoom("too_many_watchers", why)


@contextmanager
def place_of_watcher(backend: Backend) -> Iterator[None]:
    """See that there is room for one more watcher, and hold its place: it may have to read before it begins to watch.

    Raises:
        NoRoom: ``too_many_watchers``.
    """
    admit_watcher(backend)
    with backend.store.feeds.place():
        yield


def may_watch(backend: Backend) -> bool:
    """Tell whether there is room for one more watcher of a run."""
    return _full(backend) is None


def _full(backend: Backend) -> str | None:
    """Return the reason why there is no room for one more; None if there is room."""
    feeds, settings, whose = backend.store.feeds, backend.settings, watcher()
    if feeds.watching >= settings.max_watchers:
        count_exceeded("watchers")
        return f"this process serves {settings.max_watchers} of them (PALAVER_MAX_WATCHERS)"
    # Where there is one name only, no caller is kept out by that one.
    several = key_ended.get() is not None or len({key.name for key in settings.api_keys}) > 1
    if several and feeds.watching_for[whose] >= settings.max_watchers_per_key:
        count_exceeded("watchers_per_key")
        key = f"your key, {whose.key}," if whose.key else "keys without a name"
        return f"{key} may have {settings.max_watchers_per_key} of them in this process (PALAVER_MAX_WATCHERS_PER_KEY)"
    return None


async def read_run(backend: Backend, run_id: str, *, until: Until = Until.ACTION, seconds: float = 0) -> Run:
    """Return the run as it is now; with ``seconds``, once it is far enough or after that time.

    Raises:
        UnknownRun: there is no such run (any more).
        NoRoom: too many clients wait already.
    """
    run = await backend.run(run_id)
    if seconds <= 0 or until.reached(run, run):
        return run
    admit_watcher(backend)
    return await await_run(backend, run, until, seconds)


async def await_run(backend: Backend, run: Run, until: Until, seconds: float) -> Run:
    """Return ``run`` once it is far enough, or as it is after ``seconds`` or when the process has to end."""
    if until.reached(run, run):
        return run
    return await in_time(backend, _follow(backend, run, until), seconds) or await backend.run(run.id)


async def in_time(backend: Backend, wait: Coroutine[Any, Any, T], seconds: float) -> T | None:
    """Return the result of a wait; None if there is none after ``seconds``, or when the process has to end.

    Raises:
        InvalidKey: the key of the caller is not valid any more.
    """
    waiting, ended = asyncio.create_task(wait), key_ended.get()
    endings = [asyncio.create_task(event.wait()) for event in (backend.closing, ended) if event is not None]
    try:
        await asyncio.wait([waiting, *endings], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ended is not None and ended.is_set():
            raise InvalidKey
        return waiting.result() if waiting.done() else None
    finally:
        await end(waiting, *endings)


async def _follow(backend: Backend, run: Run, until: Until) -> Run:
    now = run
    while not until.reached(run, now):
        async with aclosing(backend.store.feeds.watch(run.id, after=now.last_event_id)) as events:
            async for event in events:
                # Deltas change nothing about the run; None means that a message may have been lost.
                if event is None or not event.type.endswith(".delta"):
                    now = await backend.run(run.id)
                    if until.reached(run, now):
                        return now
        # The events came to an end that the run has not come to: the store has lost it.
        now = await backend.run(run.id)
    return now
