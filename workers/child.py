"""A child process of the tools worker: tools in its main thread, everything that keeps their lease in another.

Two threads:

    main thread                                 loop thread
    Celery task -> run(step) -- coroutine -->   claim, judge, settle; async tools; keeper
    the tool's function     <-- function ----   run_tool
                            --- result ----->

A Python function cannot be interrupted from outside for certain, but a process can: first it gets an exception; if it
does not heed it within a grace, its call is settled and the process ends itself. Celery starts another one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from palaver.settings import Settings
from palaver.tools import Tool
from workers.runtime import Runtime
from workers.toolbox import Interrupted, call_async, failing, timed_out

log = logging.getLogger(__name__)

GRACE: Final = 2.0
"""Seconds that a tool has to heed the exception before its process ends."""
_FROZEN: Final = 1.0
"""Seconds beyond that after which the kernel ends the process: nothing else can while C code keeps Python's lock."""


@dataclass(slots=True)
class _Job:
    tool: Tool
    arguments: dict[str, Any]
    done: Future[Any]
    stopped: bool = False
    """Told to stop, perhaps before it began."""


class Child:
    """The process's loop thread, and its main thread's inbox."""

    def __init__(self, settings: Settings, node: str, told: int | None) -> None:
        self._settings = settings
        self._node = node
        self._told = told
        self._inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self._in_tool = False
        self._loop = asyncio.new_event_loop()
        self._runtime: Runtime | None = None
        self._ended: asyncio.Event | None = None
        self._doomed = False
        self._main = threading.get_ident()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name="steps", daemon=True)
        self._thread.start()
        started.result(30)
        signal.signal(signal.SIGUSR2, self._interrupt)

    def _run_loop(self, started: Future[None]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live(started))
        except BaseException:
            # Without its loop the process would take steps and do none of them. Celery starts another one.
            log.critical("the loop of a child broke down; its process ends", exc_info=True)
            os.kill(os.getpid(), signal.SIGKILL)

    async def _live(self, started: Future[None]) -> None:
        self._ended = asyncio.Event()
        try:
            runtime = Runtime(self._settings, node=self._node, queue="tools", capacity=1, run_tool=self._run_tool)
            async with runtime.running(sweeps=False):
                self._runtime = runtime
                if self._told is not None:
                    self._loop.add_reader(self._told, self._drain, self._told, runtime)
                started.set_result(None)
                await self._ended.wait()
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    def _drain(self, told: int, runtime: Runtime) -> None:
        self._loop.remove_reader(told)
        runtime.draining.set()

    def stop(self) -> None:
        """End the loop; the process is about to exit."""
        if self._ended is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(5)

    def run(self, step: Callable[..., Any], *ids: str) -> str:
        """Do a step: its coroutine on the loop, its tool here, in the main thread."""
        outcome: Future[str] = asyncio.run_coroutine_threadsafe(step(self._runtime, *ids), self._loop)
        outcome.add_done_callback(self._step_over)
        while (job := self._inbox.get()) is not None:
            self._do(job)
        return outcome.result()

    def _step_over(self, _: Future[str]) -> None:
        if self._doomed and self._runtime is not None:
            log.error("a tool did not stop within %g s; its process ends", GRACE)
            self._runtime.publisher.close()
            os.kill(os.getpid(), signal.SIGKILL)
        self._inbox.put(None)

    def _do(self, job: _Job) -> None:
        result, error = None, None
        try:
            signal.setitimer(signal.ITIMER_REAL, job.tool.timeout + GRACE + _FROZEN)
            self._in_tool = True
            try:
                if job.stopped:
                    raise Interrupted
                with failing(job.tool):
                    result = job.tool.function(**job.arguments)
            finally:
                self._in_tool = False
        except BaseException as raised:
            error = raised
        # Again: the interrupt may have come right before the assignment above.
        self._in_tool = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if error is None:
            job.done.set_result(result)
        else:
            job.done.set_exception(error)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._in_tool:
            raise Interrupted

    async def _run_tool(self, tool: Tool, arguments: dict[str, Any]) -> object:
        """The tool's result, whatever kind of function it is.

        Raises:
            ToolTimeout: it took longer than it declared.
            ToolFailure: it raised.
        """
        if tool.is_async:
            return await call_async(tool, arguments)
        job = _Job(tool, arguments, Future())
        self._inbox.put(job)
        done = asyncio.wrap_future(job.done)
        try:
            async with asyncio.timeout(tool.timeout):
                return await asyncio.shield(done)
        except TimeoutError:
            await self._end_tool(job, done)
            raise timed_out(tool) from None
        except asyncio.CancelledError:
            await self._end_tool(job, done)
            if done.done() and done.exception() is None:
                # It finished after all: its result is the truth, and settling it is allowed under a cancel.
                return done.result()
            raise

    async def _end_tool(self, job: _Job, done: asyncio.Future[Any]) -> None:
        """Interrupt the function; if it does not heed it, this process ends once its call is settled."""
        job.stopped = True
        signal.pthread_kill(self._main, signal.SIGUSR2)
        await asyncio.wait([done], timeout=GRACE)
        self._doomed = not done.done()
        if not self._doomed:
            # Unless somebody looks at what it raised, asyncio logs it as an error.
            done.exception()


_child: Child | None = None
_told: int | None = None
_tell: int | None = None
"""The ends of a pipe. When the last `_tell` is closed, which the worker's main process keeps, children drain: it was
told to stop, or it was killed."""


def expect() -> None:
    """In the main process, before it forks children."""
    global _told, _tell
    _told, _tell = os.pipe()


def drain() -> None:
    """In the main process: let the children drain."""
    global _tell
    if _tell is not None:
        os.close(_tell)
        _tell = None


def start(settings: Settings, node: str) -> None:
    """Begin life as a child of a tools worker."""
    global _child
    # Only this process's copy.
    drain()
    _child = Child(settings, node, _told)


def stop() -> None:
    """End it."""
    if _child is not None:
        _child.stop()


def current() -> Child:
    """This process's child."""
    assert _child is not None  # worker_process_init comes before the first task
    return _child
