"""Keeps a tool within its bounds, wherever it runs: its time, what it raises, and how much it answers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from palaver.errors import (
    ControlFlow,
    Failure,
    InvalidToolCall,
    RetryableToolError,
    ToolError,
    ToolFailure,
    ToolTimeout,
    classify,
)
from palaver.errors.tool_findings import find_failure
from palaver.schemas.content import Part
from palaver.steps.verdicts import AskPerson, Postpone
from palaver.tools import ToolDeclaration
from palaver.tools.rendering import USUAL_RESULT_CHARS, rendered
from palaver.vocabulary.limits import count_exceeded, limit_of

ToolAnswer = str | tuple[Part, ...]
"""A result for the model: a text, or parts."""
log = logging.getLogger("palaver.workers.sources.containment")

GRACE: Final = 2.0
"""Seconds within which a tool has to stop once it is cancelled."""
_BLOCKED: Final = 0.2
"""Seconds on a loop that many steps share, after which the log names the tool."""
_MAX_ERROR: Final = limit_of("tool_error")


def failure_of(error: Exception) -> Failure:
    """Return the failure of a tool's error."""
    return classify(error, source="tool")


_CANCEL: Final = "the run is cancelled"


def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a ``task`` that may await a tool, as its run is cancelled: `is_cancel` tells this from a worker that hands
    its step back."""
    task.cancel(_CANCEL)


def is_cancel(error: asyncio.CancelledError) -> bool:
    """Tell whether the run is cancelled whose tool gets this. Otherwise its call may be made again elsewhere."""
    return _CANCEL in error.args


class CallLeft(ControlFlow):
    """A call goes on later: once a person has answered a question, or after a while. ``verdict`` is that of its step,
    and says what is kept of the call."""

    def __init__(self, verdict: AskPerson | Postpone, *, answered: bool = True) -> None:
        super().__init__("the call goes on later")
        self.verdict = verdict
        self.answered = answered
        """True if the tool's service said so: it is there."""


class Interrupted(BaseException):
    """Raised in a tool's code when its time is up or its run is cancelled. Not an Exception, so that it passes
    `except`."""


@contextmanager
def failing(tool: ToolDeclaration, task: asyncio.Task[Any] | None = None) -> Iterator[None]:
    """Whatever the tool raises in this block is its failure, and goes to the model: it may know better arguments.

    Not even ``SystemExit`` goes further, which would end the loop that keeps the leases. ``task`` is the one that
    runs the tool, if the tool is a coroutine: being cancelled or closed from outside is no failure.

    Raises:
        ToolFailure: the tool raised.
        CallLeft, Interrupted: as they are; the caller knows whether the tool was interrupted.
    """
    try:
        yield
    except (Interrupted, CallLeft):
        raise
    except BaseException as error:
        if task is not None and (isinstance(error, asyncio.CancelledError) and task.cancelling()):
            raise
        if task is not None and isinstance(error, GeneratorExit):
            raise
        raise failed(tool, error) from error


def failed(tool: ToolDeclaration, error: BaseException) -> ToolFailure:
    """Return the failure of ``tool`` as text of a bounded length: the exception may be of any size, and its methods
    raise."""
    try:
        text = str(error)
    except BaseException as worse:
        text = f"which cannot say what happened ({_name(worse)})"
    if str.__len__(text) > _MAX_ERROR:
        count_exceeded("tool_error")
    # Not by methods of its own: a subclass may have any.
    message = str.__getitem__(text, slice(_MAX_ERROR))
    if not isinstance(error, ToolError | ToolTimeout | InvalidToolCall):
        message = f"{tool.name} failed: {_name(error)}: {message}"
    failure = _of_its_kind(error, message)
    known = error.finding if isinstance(error, ToolFailure) else None
    # Here, where the exception is: of what it was raised amidst nothing goes further than this.
    failure.finding = known or find_failure(error, failure, tool.errors)
    return failure


def _of_its_kind(error: BaseException, message: str) -> ToolFailure:
    match error:
        case RetryableToolError(retry_after=int() | float() as seconds):
            return RetryableToolError(message, retry_after=seconds)
        case RetryableToolError():
            return RetryableToolError(message)
        case ToolTimeout():
            return ToolTimeout(message)
        case InvalidToolCall():
            return InvalidToolCall(message)
    return ToolError(message)


def _name(error: BaseException) -> str:
    """Return the name of its class, also if a metaclass has it otherwise."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name[:100]


def presented(tool: ToolDeclaration, result: object) -> ToolAnswer:
    """Return a tool's ``result`` for the model. Runs code of the result's, so where the tool ran.

    Raises:
        ToolError: the result cannot be shown to a model.
    """
    try:
        return rendered(result, tool.max_result or USUAL_RESULT_CHARS)
    except ToolError as error:
        raise ToolError(f"{tool.name} answered with what cannot be told: {error}") from None
    except Interrupted:
        raise
    except BaseException as error:
        raise ToolError(f"{tool.name} answered with what cannot be written as JSON: {_name(error)}") from error


async def contained(tool: ToolDeclaration, call: Callable[[], object]) -> ToolAnswer:
    """Make a ``call`` of ``tool`` on this loop, await its answer if need be; return the result for the model.

    Raises:
        ToolTimeout: the tool took longer than it declares.
        ToolFailure: the tool raised.
    """
    try:
        async with asyncio.timeout(tool.timeout):
            with failing(tool, asyncio.current_task()):
                begun = time.monotonic()
                result = call()
                if (took := time.monotonic() - begun) > _BLOCKED:
                    log.warning("tool %s held up every step of its process for %.1f s", tool.name, took)
                if inspect.isawaitable(result):
                    result = await result
            return presented(tool, result)
    except TimeoutError:
        raise timed_out(tool.name, tool.timeout) from None


async def left_behind(tool: ToolDeclaration, call: Coroutine[Any, Any, ToolAnswer]) -> ToolAnswer:
    """Await a ``call`` of ``tool``, for ``GRACE`` seconds longer than it may take at most: one that swallows being
    cancelled would keep its step for ever. It goes on without anybody who waits.

    Raises:
        ToolTimeout: the tool took longer than it declares.
        ToolFailure: the tool raised.
    """
    task = asyncio.create_task(call)
    try:
        async with asyncio.timeout(tool.timeout + GRACE):
            return await asyncio.shield(task)
    except TimeoutError:
        if task.done():
            raise
        log.error("tool %s does not stop when its time is up: it goes on without its call", tool.name)
        raise timed_out(tool.name, tool.timeout) from None
    except asyncio.CancelledError as error:
        task.cancel(*error.args)
        await asyncio.wait([task], timeout=GRACE)
        if not task.done():
            log.error("tool %s does not stop when it is cancelled: it goes on without its call", tool.name)
        elif not task.cancelled() and task.exception() is None:
            # It finished after all: its result is the truth, and settling it is allowed under a cancel.
            return task.result()
        raise


def timed_out(name: str, timeout: float) -> ToolTimeout:
    """The tool ``name`` overran its ``timeout`` in seconds."""
    return ToolTimeout(f"{name} took longer than {timeout:g} s")
