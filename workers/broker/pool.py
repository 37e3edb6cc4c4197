"""An asyncio worker pool for Celery: `async def` tasks run on one event loop in one thread.

Celery 5.7 has no such pool but takes one, a `BasePool` of one's own. Two threads:

    hub thread (Celery's main one)                         loop thread
    on_apply -> _begin_waiting: accept the task -- start -> _start -> trace_coroutine: await task.run(...)
    _deliver: call back, begin the next      <- outcome --  _finished

What is counted or called back stays in the hub thread, because kombu's channels, prefetch counters and event
buffers belong to it. A task may be followed by others in its place (`TaskPool.go_on`): the loop begins those at once,
and Celery hears of it when the outcome of the first is delivered (workers/broker/jobs.py).

These internals of Celery are leaned on; tests/process/test_pool.py holds each:

- `Request.on_success((failed, result, seconds))` tells success, failure, retry, reject and revoked apart.
- What `Hub.call_soon` gets from inside another such callback waits for the next poll, up to a second. So
  outcomes come in through a readable socket: the acknowledgements they schedule run before that poll.
- A hub that reconnects has forgotten its readers, and calls `register_with_event_loop` again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from inspect import iscoroutinefunction
from select import select
from time import monotonic
from typing import Any

from celery import signals
from celery.concurrency.base import BasePool
from celery.exceptions import ImproperlyConfigured, Reject, Retry, Terminated
from celery.platforms import EX_FAILURE
from celery.utils.log import get_logger
from celery.worker import state
from kombu.asynchronous import get_event_loop

from palaver.steps.leases import Delivery

from .jobs import Job, follower, hand_over, log_received
from .tracer import Outcome, RequestStack, failed, trace_coroutine

logger = get_logger(__name__)

DRAIN_GRACE = 10.0
"""Seconds a warm shutdown waits for running tasks, unless `app.conf.palaver_drain_grace` says otherwise."""

CANCEL_GRACE = 5.0
"""Seconds that cancelled tasks have to hand back their lease, and after them the lifespan to exit."""


class TaskPool(BasePool):  # type: ignore[misc]  # Celery is untyped
    """Runs at most `limit` tasks at once: `async def` ones on the loop, others in a daemon thread each.

    Two optional attributes of the Celery app take part:
    `lifespan`, a factory of an async context manager, called with the pool: entered on the loop before the first task,
    exited after the last one. If it fails to start, or breaks down later, the worker exits with status 1.
    `draining`, an `asyncio.Event` or anything with `set()`: set on the loop when the worker begins to stop.
    """

    signal_safe = False
    body_can_be_buffer = True

    def on_start(self) -> None:
        """Start the loop and enter the lifespan.

        Raises ImproperlyConfigured for a broker transport without an event loop, RuntimeError for a lifespan that
        failed, SystemExit if the worker has to stop meanwhile.
        """
        self._hub: Any = get_event_loop()
        if self._hub is None:
            raise ImproperlyConfigured("the asyncio pool needs a broker read by events: redis or amqp")
        self._coroutines = {n: task for n, task in self.app.tasks.items() if iscoroutinefunction(task.run)}
        for task in self._coroutines.values():
            task.request_stack = RequestStack()
        self._running: set[Job] = set()
        self._waiting: deque[Job] = deque()
        self._starting: deque[Job] = deque()
        self._outcomes: deque[tuple[Job, Outcome]] = deque()
        self._jobs: dict[asyncio.Task[Any], Job] = {}
        self._connection = 0
        # Places that tasks beside others may take, or have taken: each number is written in one thread.
        self._offered = self._begun_beside = self._told_beside = 0
        self._woken = self._draining = self._left = False
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        # Celery sees that it has to stop when its hub wakes up: up to a second later, without this.
        signals.worker_shutting_down.connect(self._wake_hub)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name="steps", daemon=True)
        self._thread.start()
        try:
            while not started.done():
                select([self._wakeup], [], [], 0.5)
                state.maybe_shutdown()
            started.result()
        except BaseException as error:
            self._call_loop(_cancel_all)
            self._leave_loop()
            if isinstance(error, Exception):
                # Not its repr: redis-py's leaves the reason out.
                reason = f"{type(error).__name__}: {error}"
                raise RuntimeError(f"the lifespan of the worker did not start: {reason}") from error
            raise

    def register_with_event_loop(self, hub: Any) -> None:
        """Have the hub deliver outcomes. It is called for each connection to the broker."""
        self._connection += 1
        hub.add_reader(self._wakeup, self._deliver)

    def on_apply(
        self,
        target: Callable[..., Outcome],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        callback: Callable[[Outcome], None],
        accept_callback: Callable[[int, float], None],
        **_: Any,
    ) -> Job:
        """Begin the task, or keep it until one ends: after a reconnect Celery prefetches past the limit."""
        job = Job(self.cancel, target, args, callback, accept_callback, self._connection)
        self._waiting.append(job)
        self._begin_waiting()
        return job

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Nothing: all tasks share one pid, so `Job.terminate`, which Celery calls next, is what counts."""

    def on_close(self) -> None:
        """Begin to drain: what has not begun goes back to its queue."""
        if not self._draining:
            self._draining = True
            if hook := getattr(self.app, "draining", None):
                self._call_loop(hook.set)
            self._begin_waiting()

    def on_stop(self) -> None:
        """Drain: let running tasks end within the grace, cancel the others, exit the lifespan, end the loop.

        A cold shutdown has no grace. A signal may interrupt this with another call of itself.
        """
        self.on_close()
        if not state.should_terminate:
            # The hub goes on: acknowledgements and events leave, a message popped too late goes back.
            grace = self.app.conf.get("palaver_drain_grace", DRAIN_GRACE)
            self._await_running(grace, self._hub.create_loop())
        for job in tuple(self._running):
            self.cancel(job)
        self._await_running(CANCEL_GRACE, iter(()))
        self._leave_loop()

    on_terminate = on_stop

    def cancel(self, job: Job) -> None:
        """Cancel the job on the loop, once: twice would interrupt how it hands back its lease."""
        self._call_loop(lambda: job.running and not job.running.cancelling() and job.running.cancel())

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call it on the loop, once that comes to it. In any thread."""
        self._call_loop(function)

    def _get_info(self) -> dict[str, Any]:
        return {**super()._get_info(), "running": len(self._running), "waiting": len(self._waiting)}

    # In the hub thread.

    @property
    def _taken(self) -> int:
        return len(self._running) + self._offered + self._begun_beside - self._told_beside

    def _begin_waiting(self) -> None:
        while self._waiting and (self._draining or self._taken < self.limit):
            job = self._waiting.popleft()
            if self._draining:
                job.callback(failed(Reject("the worker is stopping", requeue=True)))
                continue
            self._running.add(job)
            job.accept_callback(os.getpid(), monotonic())
            if job.args[0] in self._coroutines:
                self._starting.append(job)
                if len(self._starting) == 1:
                    self._call_loop(self._start_all)
            else:
                threading.Thread(target=self._run_in_thread, args=(job,), daemon=True).start()

    def _deliver(self) -> None:
        with suppress(BlockingIOError):
            self._wakeup.recv(64)
        self._woken = False
        while self._outcomes:
            job, outcome = self._outcomes.popleft()
            self._running.discard(job)
            self._running.update(job.following)
            self._told_beside += len(job.following[1:])
            begins = [hand_over(job, following) for following in job.following]
            try:
                job.callback(outcome)
            except Exception:
                logger.exception("Celery did not take the outcome of task %s", job.args[1])
            for begin in begins:
                begin()
        self._begin_waiting()

    def _await_running(self, seconds: float, turns: Iterator[None]) -> None:
        deadline = monotonic() + seconds
        self._hub.call_later(seconds, _wake)
        while self._running and self._thread.is_alive() and monotonic() < deadline:
            try:
                next(turns)
            except Exception:  # No turns of the hub: not wanted, or its connection is lost.
                select([self._wakeup], [], [], 0.1)
            self._deliver()

    def _leave_loop(self) -> None:
        if self._left:
            return
        for leave, patience in ((self._stopping.set, CANCEL_GRACE), (_cancel_all, 1.0)):
            self._call_loop(leave)
            self._thread.join(patience)
        if self._thread.is_alive():
            logger.error("the lifespan or a task of the worker does not end; leaving it behind")
        self._deliver()
        self._running.clear()
        self._left = True

    # In the loop thread.

    def can_go_on(self) -> bool:
        """Tell whether a task may follow the current one in its place. None does while the worker drains, nor on a
        connection that is lost: what is told of it would go nowhere."""
        job = self._jobs.get(asyncio.current_task())  # type: ignore[arg-type]
        return job is not None and not (self._draining or job.terminated) and job.connection == self._connection

    def go_on(self, delivery: Delivery) -> None:
        """Begin the task of a delivery that is not sent in the place of the current one, once that has ended."""
        job = self._jobs[asyncio.current_task()]  # type: ignore[index]
        self._begun_beside += bool(job.following)
        job.following.append(follower(job, delivery))

    @contextmanager
    def reserving(self, places: int) -> Iterator[None]:
        """Within the block so many places are for tasks that may follow the current one beside another: no task that is
        handed over meanwhile gets them."""
        self._offered += places
        try:
            yield
        finally:
            self._offered -= places
            if places and self._waiting:
                self._wake_hub()

    def _run_loop(self, started: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live(started))
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            elif self._stopping.is_set():
                logger.exception("the lifespan of the worker did not exit cleanly")
            else:
                logger.critical("the lifespan of the worker broke down, so the worker stops", exc_info=True)
                state.should_stop = EX_FAILURE
        self._wake_hub()

    async def _live(self, started: Future[None]) -> None:
        async with getattr(self.app, "lifespan", nullcontext)(self):
            started.set_result(None)
            self._wake_hub()
            await self._stopping.wait()

    def _start_all(self) -> None:
        while self._starting:
            self._start(self._starting.popleft())

    def _start(self, job: Job) -> None:
        name, task_id, request, *_ = job.args
        coroutine = trace_coroutine(self._coroutines[name], task_id, request)
        job.running = self._loop.create_task(coroutine, name=task_id)
        self._jobs[job.running] = job
        job.running.add_done_callback(partial(self._finished, job))
        if job.terminated:
            job.running.cancel()

    def _finished(self, job: Job, running: asyncio.Task[Outcome]) -> None:
        del self._jobs[running]
        for following in job.following:
            log_received(following)
            self._start(following)
        try:
            outcome = running.result()
        except asyncio.CancelledError:
            stopping = Terminated("the worker is stopping")
            error = Retry(exc=stopping) if self._draining else Terminated("cancelled")
            outcome = failed(error)
        except Exception as error:
            outcome = failed(error)
        self._report(job, outcome)

    # In any thread.

    def _run_in_thread(self, job: Job) -> None:
        try:
            outcome = job.target(*job.args)
        except BaseException as error:
            outcome = failed(error)
        self._report(job, outcome)

    def _report(self, job: Job, outcome: Outcome) -> None:
        if job.terminated:
            outcome = failed(Terminated("cancelled"))
        self._outcomes.append((job, outcome))
        self._wake_hub()

    def _wake_hub(self, **_: Any) -> None:
        if not self._woken:
            self._woken = True
            self._waker.send(b"\0")

    def _call_loop(self, function: Callable[..., Any], *args: Any) -> None:
        with suppress(RuntimeError):  # The loop has ended.
            self._loop.call_soon_threadsafe(function, *args)


def _wake() -> None:
    """As a timer, ends a poll of the hub."""


def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
