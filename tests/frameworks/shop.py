"""A module of tools as a team has it that comes from elsewhere. It runs where the frameworks are installed."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import FunctionTool, RunContextWrapper, function_tool
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel
from pydantic_ai import ModelRetry
from pydantic_ai import Tool as PydanticTool

from palaver import ToolContext, tool


class Line(BaseModel):
    """A line of an order."""

    article: str
    pieces: int = 1


@langchain_tool
def lc_order(lines: list[Line], note: str = "") -> str:
    """Order something."""
    return f"{sum(line.pieces for line in lines)} pieces{note}"


@langchain_tool
async def lc_find(words: str) -> str:
    """Find something."""
    await asyncio.sleep(0)
    return f"found {words}"


class LcOwn(BaseTool):
    """A class of the team's own."""

    name: str = "lc_own"
    description: str = "Answer at once."
    return_direct: bool = True

    def _run(self, text: str) -> str:
        raise ToolException(f"no {text} today")


def _lc_schema(**arguments: Any) -> str:
    return str(sorted(arguments))


lc_own = LcOwn()
lc_schema = StructuredTool.from_function(
    _lc_schema,
    name="lc_schema",
    description="By a schema.",
    args_schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)


def pa_sum(numbers: list[int], *, start: int = 0) -> int:
    """Add numbers.

    Args:
        numbers: The numbers.
    """
    return sum(numbers, start)


async def _pa_ask(line: Line) -> str:
    """Ask for something."""
    if line.pieces > 9:
        raise ModelRetry("at most nine")
    return f"{line.pieces} of {line.article}"


pa_sum_tool = PydanticTool(pa_sum)
pa_ask = PydanticTool(_pa_ask, name="pa_ask", requires_approval=True, timeout=7)


@function_tool
def oa_double(number: int, wrapped: bool = False) -> str:
    """Double a number."""
    return f"({2 * number})" if wrapped else str(2 * number)


@function_tool(needs_approval=True, timeout=9)
async def oa_context(wrapper: RunContextWrapper[ToolContext], word: str) -> str:
    """Tell of the call."""
    return f"{word} {wrapper.context.call_id}"


@function_tool
def oa_fails(word: str) -> str:
    """Fail."""
    raise ValueError(word)


async def _raw(context: Any, arguments: str) -> str:
    return f"{context.tool_name} {context.tool_call_id} {arguments}"


oa_raw = FunctionTool(
    name="oa_raw",
    description="By a schema.",
    params_json_schema={"type": "object", "properties": {"a": {"type": "string"}}},
    on_invoke_tool=_raw,
    strict_json_schema=False,
)
oa_off = FunctionTool(name="oa_off", description="", params_json_schema={}, on_invoke_tool=_raw, is_enabled=False)

again = lc_find
"""A second name for a tool makes no second tool."""
safe_find = tool(name="safe_find", idempotent=True, timeout=5)(lc_find)
