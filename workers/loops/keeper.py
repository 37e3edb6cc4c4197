"""Keeps a worker's leases: renews them, hears which runs are cancelled, and gives them up when the worker stops.

A process that can keep none any more is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from palaver.feature import brought
from palaver.processes.failpoints import failpoint
from palaver.processes.tasks import end
from palaver.steps.leases import Renewal
from palaver.store.fleet import first_look
from palaver.vocabulary.step_kinds import MODEL, TOOL

from ..steps.active_step import ActiveStep, InterruptReason
from ..steps.runtime import Runtime, is_store_outage
from .deaths import DeathWatch
from .planned import PlannedWork
from .sweeper import Sweeper

log = logging.getLogger("palaver.workers.loops.keeper")

_SOON: Final = 0.1
_LATER: Final = 1.0
"""Seconds after which a chore that broke down begins again: at first, and when it breaks down again and again. Who has
no connection for a second may be taken for dead (ADR 0016)."""
_APART: Final = 0.2
"""Seconds between two heartbeats, at least: a connection may be cut again and again."""
_IDLE: Final = 0.5
"""Seconds after which a worker that had steps looks whether it still has: until it says so, others count them."""
_STANDARD_ERROR: Final = 2
"""The descriptor: Celery has another in the place of `sys.stderr`."""


@contextlib.asynccontextmanager
async def running(runtime: Runtime, *, sweeps: bool) -> AsyncIterator[Runtime]:
    """Renew leases, hear cancels, write deltas and, if this process ``sweeps``, attend to what is due."""
    deaths = DeathWatch(
        runtime.store,
        runtime.publish,
        runtime.worker_id,
        runtime.settings.lease_seconds,
        first_look=first_look.suspects,
    )
    planned = PlannedWork(runtime)
    keeper = Keeper(runtime, deaths, planned.wake)
    chores = [keeper.heartbeat, keeper.fence, keeper.listen, keeper.drain, runtime.deltas.run]
    if runtime.kinds != {TOOL} or runtime.limiter.guards_services:
        chores += [runtime.limiter.listen, runtime.limiter.renew_places]
    if sweeps:
        # Says at once that Redis is not there; a child of a worker that runs already waits it out.
        await runtime.store.loaded()
        await runtime.store.require_durability()
        await runtime.publish_queues()
        # Who is ready can be given work.
        await keeper.report()
        sweeper = Sweeper(
            runtime.store, runtime.publisher, runtime.publish, runtime.settings.lease_seconds, runtime.worker_id
        )
        chores += [sweeper.run, sweeper.repair, sweeper.look_for_workers, deaths.run, runtime.store.rewinds.watch]
        chores += [runtime.store.feature_set.watch]
        for loops in brought("loops"):
            chores += loops(runtime.settings, runtime.store, runtime.worker_id)
        if MODEL in runtime.kinds:
            chores.append(planned.run)
    tasks = [asyncio.create_task(_for_ever(chore), name=str(chore)) for chore in chores]
    try:
        yield runtime
    finally:
        await end(*tasks)
        await keeper.leave()
        if runtime.capabilities.declared is not None:
            await runtime.capabilities.declared.close()
        await runtime.publisher.close()
        await runtime.close()
        await runtime.store.close()


@contextlib.asynccontextmanager
async def watched(patience: float) -> AsyncIterator[None]:
    """Within the block, this process ends with status 1 once its loop has not come round for ``patience`` seconds: a
    tool holds it up for so long that the leases of all its steps have run out.

    Nothing else can end it: the loop does not come to it, and code in C may keep Python's lock. So it is a timer of
    the interpreter's own, which needs neither, says where each thread is, and ends the process. A supervisor starts it
    again.
    """

    async def turn() -> None:
        while True:
            faulthandler.dump_traceback_later(patience, exit=True, file=_STANDARD_ERROR)
            await asyncio.sleep(patience / 8)

    turning = asyncio.create_task(turn())
    try:
        yield
    finally:
        await end(turning)
        faulthandler.cancel_dump_traceback_later()


class Keeper:
    """Four chores on the worker's loop, apart from the steps: a step that blocks nothing cannot delay them."""

    def __init__(self, runtime: Runtime, deaths: DeathWatch, planned: Callable[[], None]) -> None:
        self._runtime = runtime
        self._deaths = deaths
        self._planned = planned
        self._cut = asyncio.Event()

    async def heartbeat(self) -> None:
        """Renew every lease and report, three times a lease, and whenever a connection was cut."""
        runtime = self._runtime
        while True:
            self._cut.clear()
            leased = {step: step.lease for step in runtime.active if step.lease is not None}
            requested_at = time.monotonic()
            progress = {i: now for i, step in enumerate(leased) if (now := step.progress.now()) is not None}
            for step, answer in zip(leased, await runtime.store.steps.renew([*leased.values()], progress), strict=True):
                _apply(step, answer, requested_at)
            await self.report()
            await runtime.publish_queues()
            await asyncio.sleep(_APART)
            await self._rest(runtime.settings.heartbeat - _APART, busy=bool(leased))

    async def _rest(self, seconds: float, *, busy: bool) -> None:
        """Do nothing for so long, or until a connection was cut. One that was ``busy`` and no longer is says so."""
        ends = time.monotonic() + seconds
        while not self._cut.is_set() and (left := ends - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._cut.wait(), min(left, _IDLE) if busy else left)
            if busy and not self._runtime.active:
                busy = False
                await self._runtime.report()

    async def report(self) -> None:
        """Say that this process is there, what it does, and what it can do."""
        self._runtime.renew_tools()
        await self._runtime.store.tools.publish(self._runtime.tool_set, self._runtime.queues)
        if self._runtime.capabilities.declared is not None:
            await self._runtime.capabilities.declared.look()
        await self._runtime.report()

    async def fence(self) -> None:
        """Stop steps whose lease could not be renewed for too long, at the latest: whatever they bring, another worker
        goes on (ADR 0014)."""
        settings = self._runtime.settings
        look = settings.heartbeat / 4
        patience = max(settings.lease_seconds, settings.outage) - look
        while True:
            for active in tuple(self._runtime.active):
                if active.working and active.reason is None and active.unheard > patience:
                    log.warning(
                        "no word from Redis for %.1f s: stopping %s/%s", active.unheard, active.run_id, active.step
                    )
                    active.interrupt(InterruptReason.LOST)
            await asyncio.sleep(look)

    async def listen(self) -> None:
        """Let runs go as they are cancelled: milliseconds, where ``heartbeat`` would need seconds."""
        listener = self._runtime.store.fleet.cancels(self._runtime.worker_id, self._was_cut, self._planned)
        try:
            async for run in listener.listen():
                failpoint("cancel.heard")
                self._runtime.interrupt(
                    run.run_id, InterruptReason.PAUSED if run.pausing else InterruptReason.CANCELLED
                )
        finally:
            self._was_cut()
            await listener.close()

    def _was_cut(self) -> None:
        """The connection on which cancels are heard was lost: others may take this worker for dead, unless it speaks,
        and it may take others for dead that were cut off with it."""
        self._cut.set()
        self._deaths.was_cut()

    async def drain(self) -> None:
        """Once the worker begins to stop, let steps finish for a grace, then give the rest back."""
        await self._runtime.draining.wait()
        await asyncio.sleep(self._runtime.settings.drain_grace)
        while True:
            for active in tuple(self._runtime.active):
                active.interrupt(InterruptReason.DRAIN)
            await asyncio.sleep(0.1)

    async def leave(self) -> None:
        """Say good-bye; if Redis is away, the report runs out by itself."""
        with contextlib.suppress(Exception):
            await self._runtime.store.fleet.leave(self._runtime.worker_id)


def _apply(active: ActiveStep, answer: Renewal | None, requested_at: float) -> None:
    if answer in (Renewal.PROLONGED, Renewal.PAUSING):
        active.renewed(requested_at)
    match answer:
        case Renewal.CANCELLING:
            active.interrupt(InterruptReason.CANCELLED)
        case Renewal.PAUSING:
            active.interrupt(InterruptReason.PAUSED)
        case Renewal.GONE:
            # Also the answer for a step that was settled a moment ago: then there is nothing to interrupt.
            active.interrupt(InterruptReason.LOST)


async def _for_ever(chore: Callable[[], Awaitable[None]]) -> None:
    """Run a chore again whenever it breaks down: Redis may be away for a while."""
    pause, clock = _SOON, asyncio.get_running_loop().time
    while True:
        began = clock()
        try:
            await chore()
        except Exception as error:
            name = getattr(chore, "__qualname__", chore)
            ours = not is_store_outage(error)
            log.warning("%s: %s: %s; again soon", name, type(error).__name__, error, exc_info=ours)
        pause = _SOON if clock() - began > _LATER else min(2 * pause, _LATER)
        await asyncio.sleep(pause)
