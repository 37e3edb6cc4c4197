"""Runs tools: on the loop for those that are async or inline, in the main thread of a child process for the others."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from palaver.errors import ControlFlow, Failure, ToolError, ToolFailure, ToolTimeout, classify
from palaver.models import Message, ToolCall
from palaver.tools import Tool
from palaver.tools.declaration import render
from palaver.verdicts import ToolOutcome


def answer(call: ToolCall, result: object) -> ToolOutcome:
    """The result as the answer to ``call``."""
    return ToolOutcome(Message(role="tool", call_id=call.id, name=call.name, content=render(result)))


def failure_of(error: Exception) -> Failure:
    """What a tool's error is."""
    return classify(error, source="tool")


async def call_async(tool: Tool, arguments: dict[str, Any]) -> object:
    """Run an async tool, or a quick inline one, on this loop.

    Raises:
        ToolTimeout: it took longer than it declared.
        ToolFailure: it raised.
    """
    try:
        result = tool.function(**arguments)
        if not inspect.isawaitable(result):
            return result
        async with asyncio.timeout(tool.timeout) as limit:
            return await result
    except TimeoutError as error:
        if limit.expired():
            raise timed_out(tool) from None
        raise raised(tool, error) from error
    except (ToolFailure, ControlFlow):
        raise
    except Exception as error:
        raise raised(tool, error) from error


def timed_out(tool: Tool) -> ToolTimeout:
    """``tool`` overran."""
    return ToolTimeout(f"{tool.name} took longer than {tool.timeout:g} s")


def raised(tool: Tool, error: Exception) -> ToolError:
    """``tool`` raised ``error``: the model is told, as it may know better arguments."""
    return ToolError(f"{tool.name} failed: {type(error).__name__}: {error}")
