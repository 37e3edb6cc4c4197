"""Awaits one `async def` task, and reports of it the same as Celery's own tracer does of a function it calls.

Logs, signals, the request and the outcome are the same. `TraceInfo`, the part of Celery's tracer for exceptions of
tasks, is used as it is. `Request` has already decoded the arguments into its dict, so the body is not parsed again.
Left out, of no use here: links, chains, chords, `autoretry_for`, time limits, and the hooks `before_start`,
`on_success` and `after_return`.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from time import monotonic
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import signals, states
from celery.app import trace
from celery.app.task import Context, Task
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.saferepr import saferepr

Outcome = tuple[int, Any, float]
"""The answer of a tracer: failed (0 or 1), the result's repr or the ExceptionInfo, the seconds it took."""


class RequestStack:
    """Stands in for a task's thread-local request stack: `self.request` is right in each asyncio task."""

    def __init__(self) -> None:
        self._requests: ContextVar[tuple[Context, ...]] = ContextVar("requests", default=())

    def push(self, request: Context) -> None:
        self._requests.set((*self._requests.get(), request))

    def pop(self) -> None:
        self._requests.set(self._requests.get()[:-1])

    @property
    def top(self) -> Context | None:
        return self._requests.get()[-1] if self._requests.get() else None


async def trace_coroutine(task: Task, task_id: str, request: dict[str, Any]) -> Outcome:
    """Await the task, which has a RequestStack. Raises CancelledError if the task does, and nothing else."""
    args, kwargs = request["args"], request["kwargs"]
    # With headers, for which it would look through all that a request may have: a delivery has none of its own.
    context = Context(request, args=args, kwargs=kwargs, called_directly=False, headers={})
    task.request_stack.push(context)
    facts = {"sender": task, "task_id": task_id, "task": task, "args": args, "kwargs": kwargs}
    if signals.task_prerun.receivers:
        signals.task_prerun.send(**facts)
    begun, status, answer = monotonic(), states.REVOKED, None
    try:
        answer = await task.run(*args, **kwargs)
        status = states.SUCCESS
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        status, answer = _outcome_of(task, context, error)
    finally:
        if signals.task_postrun.receivers:
            signals.task_postrun.send(**facts, retval=answer, state=status)
    seconds = monotonic() - begun
    if status != states.SUCCESS:
        return 1, answer, seconds
    result = saferepr(answer, task.resultrepr_maxsize)
    if signals.task_success.receivers:
        signals.task_success.send(sender=task, result=answer, runtime=seconds)
    if trace.logger.isEnabledFor(logging.INFO):
        shown = {"id": task_id, "name": trace.get_task_name(context, task.name), "runtime": seconds}
        write(trace.logger, trace.LOG_SUCCESS, {**shown, "return_value": result})
    return 0, result, seconds


def write(logger: logging.Logger, line: str, facts: dict[str, Any]) -> None:
    """Write a line of Celery's about a task. Which code it is of is not looked for: that costs as much as the line."""
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, line, (facts,), None, extra={"data": facts})
    logger.handle(record)


def failed(error: BaseException) -> Outcome:
    """The outcome of a task that ended with `error` outside of a tracer."""
    try:
        raise _ordinary(error)
    except Exception:
        return 1, ExceptionInfo(), 0.0


def _outcome_of(task: Task, context: Context, error: BaseException) -> tuple[str, ExceptionInfo]:
    """Return the state into which the exception being handled puts the task; log and report it as Celery's tracer
    does."""
    if isinstance(error, Ignore | Reject):
        trace.TraceInfo(states.IGNORED, error).handle_ignore(task, context)
        return states.IGNORED, ExceptionInfo(internal=True)
    status = states.RETRY if isinstance(error, Retry) else states.FAILURE
    info = trace.TraceInfo(status, _ordinary(error)).handle_error_state(task, context)
    # All of it is written down by now. It leads to the frame that awaits the task, which has it in its answer: a cycle,
    # and all that the task's frames hold would wait for the garbage collector.
    error.__traceback__ = None
    return status, info


def _ordinary(error: BaseException) -> Exception:
    """Turn an error that would end the process (SystemExit) into a failure of the task alone."""
    return error if isinstance(error, Exception) else RuntimeError(f"the task raised {error!r}")
