"""A child process of the tools worker: tools in its main thread, everything that keeps their lease in another.

Two threads:

    main thread                                 loop thread
    Celery task -> run(step) -- coroutine -->   claim, judge, settle; async tools; keeper
    the tool's function     <-- function ----   run_blocking
                            --- result ----->

A Python function cannot be interrupted from outside for certain, but a process can: first it gets an exception; if it
does not stop within a grace, its call is settled and the process ends itself; and if it does not even do that, its
parent ends it (workers/children/guard.py). Celery starts another one. After each call, whatever the tool started is
ended, and the process is put back as it was.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from billiard.common import terminate_handler_fired

from palaver.config.settings import Settings
from palaver.late import dataclass
from palaver.processes.process_tree import below, children_of
from palaver.secrets.redaction import add_secrets_everywhere, compared
from palaver.tools import ToolDeclaration, ToolSet
from palaver.vocabulary.limits import MIB

from ..loops.keeper import running
from ..sources import Toolbox, open_toolbox, sources_of
from ..sources.companions import companions
from ..sources.containment import GRACE, Interrupted, ToolAnswer, failed, failing, presented, timed_out
from ..steps.capabilities import Capabilities
from ..steps.histograms import Histograms
from ..steps.registry import StepTask
from ..steps.runtime import Runtime
from . import processes
from .output import Output
from .process_state import ProcessState
from .slots import ActiveCall, Slots
from .told_tools import ToldTools

log = logging.getLogger("palaver.workers.children.child")

_FROZEN: Final = 1.0
"""Seconds beyond that after which the parent ends the process: nothing else can while C code keeps Python's lock."""


@dataclass(slots=True)
class _Job:
    tool: ToolDeclaration
    call: Callable[[], object]
    done: Future[ToolAnswer]
    stopped: bool = False
    """True once it must stop, perhaps before it began."""


@dataclass(frozen=True, slots=True)
class ChildPlace:
    """A child's own place in what it shares with its parent."""

    number: int
    slots: Slots
    output: Output
    histograms: Histograms
    tools: ToldTools


class Child:
    """The process's loop thread, and its main thread's inbox."""

    def __init__(
        self,
        settings: Settings,
        queues: Sequence[str],
        node: str,
        drain_reader: int | None,
        place: ChildPlace,
    ) -> None:
        self._settings = settings
        self._queues = queues
        self._node = node
        self._drain_reader = drain_reader
        self._slots, self._place = place.slots, place.number
        self._output, self._histograms, self._told = place.output, place.histograms, place.tools
        self._inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self._in_tool = False
        self._loop = asyncio.new_event_loop()
        self._runtime: Runtime | None = None
        self._ended: asyncio.Event | None = None
        self._doomed = False
        self._main = threading.get_ident()
        processes.adopt_orphans()
        # Here, where no loop runs: it imports the modules of users.
        opened = open_toolbox(settings, sources_of(settings), run_blocking=self._run_blocking, watch=self._watched)
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run_loop, args=(opened, started), name="steps", daemon=True)
        self._thread.start()
        started.result(30)
        signal.signal(signal.SIGUSR2, self._interrupt)
        self._started = frozenset(children_of(os.getpid()))
        """The processes that the modules of the tools started: it is for the modules to end them."""
        self._surroundings = ProcessState()

    def _run_loop(self, opened: AbstractAsyncContextManager[Toolbox], started: Future[None]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live(opened, started))
        except BaseException:
            # Without its loop the process would take steps and do none of them. Celery starts another one.
            log.critical("the loop of a child broke down; its process ends", exc_info=True)
            os.kill(os.getpid(), signal.SIGKILL)

    async def _live(self, opened: AbstractAsyncContextManager[Toolbox], started: Future[None]) -> None:
        self._ended = asyncio.Event()
        try:
            async with opened as tools:
                await self._serve(tools, started, self._ended)
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    async def _serve(self, tools: Toolbox, started: Future[None], ended: asyncio.Event) -> None:
        """Take steps until the process is to end."""
        # No model is asked here: that needs neither the table of providers nor their keys.
        able, histograms = Capabilities(tools, {}), self._histograms
        runtime = Runtime(
            self._settings,
            histograms,
            queues=self._queues,
            node=self._node,
            capacity=1,
            capabilities=able,
            alone=True,
            tell_tools=self._renewed,
        )
        async with running(runtime, sweeps=False):
            self._runtime = StepTask.runtime = runtime
            self._greatest = _greatest(tools)
            self._heartbeat(self._settings.heartbeat / 4)
            self._slots.work(self._place, False)
            self._slots.begin(self._place, ActiveCall(0, 0, 0.0, self._greatest, ""), 0.0)
            if self._drain_reader is not None:
                self._loop.add_reader(self._drain_reader, self._drain, self._drain_reader, runtime)
            started.set_result(None)
            await ended.wait()

    def _renewed(self, told: ToolSet) -> None:
        """A source has other tools."""
        self._told.tell(told)
        if self._runtime is not None:
            self._greatest = _greatest(self._runtime.tools)

    def _heartbeat(self, every: float) -> None:
        """Tell the parent that the loop goes round; while it does not, the parent renews the lease."""
        self._slots.heartbeat(self._place)
        self._loop.call_later(every, self._heartbeat, every)

    def _drain(self, reader: int, runtime: Runtime) -> None:
        self._loop.remove_reader(reader)
        runtime.draining.set()

    def stop(self) -> None:
        """End the loop; the process is about to exit."""
        if self._ended is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(5)

    def run(self, attempt: Coroutine[Any, Any, str], title: str) -> str:
        """Try a step: its coroutine on the loop, its tool here, in the main thread."""
        self._output.begin(title)
        self._slots.work(self._place, True)
        outcome: Future[str] = asyncio.run_coroutine_threadsafe(attempt, self._loop)
        outcome.add_done_callback(self._step_over)
        while (job := self._inbox.get()) is not None:
            self._do(job)
        self._tidy_up()
        self._slots.work(self._place, False)
        return outcome.result()

    def _tidy_up(self) -> None:
        """Between two steps: end what the tool started, and undo what it changed."""
        try:
            if processes.has_children() and (ended := processes.end_below(keep=self._started | companions)):
                log.warning("ended %d processes that a tool had started", ended)
            self._surroundings.restore()
            self._output.end()
            add_secrets_everywhere(None)
        except Exception:
            log.critical("a tool left its process in a state that cannot be put right; it ends", exc_info=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def _step_over(self, _: Future[str]) -> None:
        if self._doomed and self._runtime is not None:
            log.error("a tool did not stop within %g s; its process ends", GRACE)
            asyncio.run_coroutine_threadsafe(self._end_process(self._runtime), self._loop)
            return
        self._inbox.put(None)

    async def _end_process(self, runtime: Runtime) -> None:
        try:
            await runtime.publisher.close()
        finally:
            _end_with_all_below()

    def _do(self, job: _Job) -> None:
        answer: ToolAnswer = ""
        error, told_before = None, terminate_handler_fired()
        try:
            self._in_tool = True
            try:
                if job.stopped:
                    raise Interrupted
                with failing(job.tool):
                    result = job.call()
                answer = presented(job.tool, result)
            finally:
                self._in_tool = False
        except BaseException as raised:
            error = raised
        # Again: the interrupt may have come right before the assignment above.
        self._in_tool = False
        if error is not None and terminate_handler_fired() and not told_before:
            # The process was told to end amid the call, by the tool or by others: what came of the call is not known.
            _end_with_all_below()
        if error is None:
            job.done.set_result(answer)
        elif isinstance(error, Interrupted) and not job.stopped:
            # It was not interrupted: it raised this itself.
            job.done.set_exception(failed(job.tool, error))
        else:
            job.done.set_exception(error)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._in_tool:
            raise Interrupted

    @contextmanager
    def _watched(self, tool: ToolDeclaration) -> Iterator[None]:
        """Around a call: the parent sees it, and ends this process if it takes too long."""
        self._slots.tell_of_secrets(self._place, len(compared()) > 1)
        self._slots.begin(self._place, self._active_call(tool), time.monotonic() + tool.timeout + GRACE + _FROZEN)
        try:
            yield
        finally:
            if not self._doomed:
                self._slots.end(self._place)

    def _active_call(self, tool: ToolDeclaration) -> ActiveCall:
        """The call of the one step that this process works on."""
        assert self._runtime is not None
        (lease,) = (active.lease for active in self._runtime.active if active.lease is not None)
        return ActiveCall(lease.fence, lease.try_number, tool.timeout, self._greatest, tool.name)

    async def _run_blocking(self, tool: ToolDeclaration, call: Callable[[], object]) -> ToolAnswer:
        """Make the call in the main thread; return the result for the model.

        Raises:
            ToolTimeout: it took longer than the tool declares.
            ToolFailure: the tool raised.
        """
        job = _Job(tool, call, Future())
        self._inbox.put(job)
        done = asyncio.wrap_future(job.done)
        try:
            async with asyncio.timeout(tool.timeout):
                return await asyncio.shield(done)
        except TimeoutError:
            await self._end_tool(job, done)
            raise timed_out(tool.name, tool.timeout) from None
        except asyncio.CancelledError:
            await self._end_tool(job, done)
            if done.done() and done.exception() is None:
                # It finished after all: its result is the truth, and settling it is allowed under a cancel.
                return done.result()
            raise

    async def _end_tool(self, job: _Job, done: asyncio.Future[ToolAnswer]) -> None:
        """Interrupt the function; if it does not stop, this process ends once its call is settled."""
        job.stopped = True
        signal.pthread_kill(self._main, signal.SIGUSR2)
        await asyncio.wait([done], timeout=GRACE)
        self._doomed = not done.done()
        if not self._doomed:
            # Unless what it raised is looked at, asyncio logs it as an error.
            done.exception()


def _greatest(tools: Toolbox) -> float:
    """The longest that a call of any of these may take."""
    return max(tool.timeout for tool in tools.declarations)


_child: Child | None = None
_drain_reader: int | None = None
_drain_writer: int | None = None
"""The ends of a pipe. When the last `_drain_writer` is closed, which the worker's main process holds open, children
drain: it is draining itself, or it was killed."""


def expect() -> None:
    """In the main process, before it forks children."""
    global _drain_reader, _drain_writer
    _drain_reader, _drain_writer = os.pipe()


def drain() -> None:
    """In the main process: let the children drain."""
    global _drain_writer
    if _drain_writer is not None:
        os.close(_drain_writer)
        _drain_writer = None


def _end_with_all_below() -> None:
    """End this process at once, and those that it started."""
    processes.kill(below(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


def heard() -> set[int]:
    """In a child: the descriptor on which it hears that it is to drain."""
    return set() if _drain_reader is None else {_drain_reader}


def start(settings: Settings, queues: Sequence[str], node: str, place: ChildPlace) -> None:
    """Begin life as a child of a tools worker."""
    global _child
    # Only this process's copy.
    drain()
    if settings.tool_address_space:
        room = settings.tool_address_space * MIB
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    _child = Child(settings, queues, node, _drain_reader, place)
    StepTask.in_child = _child.run


def stop() -> None:
    """End it."""
    if _child is not None:
        _child.stop()
