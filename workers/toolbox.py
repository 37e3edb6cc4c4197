"""Runs tools: on the loop for those that are async or inline, in the main thread of a child process for the others."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from palaver.errors import ControlFlow, Failure, ToolError, ToolFailure, ToolTimeout, classify
from palaver.models import Message, ToolCall
from palaver.secrets import hide
from palaver.tools import Tool
from palaver.tools.declaration import render
from palaver.verdicts import ToolOutcome


def answer(call: ToolCall, result: object, *, edited: bool = False) -> ToolOutcome:
    """The result as the answer to ``call``, without secrets of this process; if its arguments were ``edited``, the
    model is told what they were.

    Raises:
        ToolError: the result cannot be told to a model.
    """
    try:
        text = hide(render(result))
    except Exception as error:
        raise ToolError(f"{call.name} answered with what cannot be written as JSON: {type(error).__name__}") from error
    note = f"[The user changed the arguments of this call to {call.arguments}]\n" if edited else ""
    return ToolOutcome(Message(role="tool", call_id=call.id, name=call.name, content=note + text))


def failure_of(error: Exception) -> Failure:
    """What a tool's error is."""
    return classify(error, source="tool")


class Interrupted(BaseException):
    """Raised in a tool's code when its time is up or its run is cancelled. Not an Exception, so that it passes
    `except`."""


@contextmanager
def failing(tool: Tool, task: asyncio.Task[Any] | None = None) -> Iterator[None]:
    """Whatever the tool raises in this block is its failure, which the model is told: it may know better arguments.

    Not even ``SystemExit`` goes further, which would end the loop that keeps the leases. ``task`` is the one that
    runs the tool, if the tool is a coroutine: being cancelled from outside is no failure.

    Raises:
        ToolFailure: it raised.
    """
    try:
        yield
    except (ToolFailure, ControlFlow, Interrupted, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise ToolError(f"{tool.name} failed: {type(error).__name__}: {error}") from error


async def call_async(tool: Tool, arguments: dict[str, Any]) -> object:
    """Run an async tool, or a quick inline one, on this loop.

    Raises:
        ToolTimeout: it took longer than it declared.
        ToolFailure: it raised.
    """
    try:
        async with asyncio.timeout(tool.timeout):
            with failing(tool, asyncio.current_task()):
                result = tool.function(**arguments)
                return await result if inspect.isawaitable(result) else result
    except TimeoutError:
        raise timed_out(tool) from None


def timed_out(tool: Tool) -> ToolTimeout:
    """``tool`` overran."""
    return ToolTimeout(f"{tool.name} took longer than {tool.timeout:g} s")
