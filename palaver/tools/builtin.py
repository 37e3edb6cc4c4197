"""Tools that every worker has: ``calculator``, ``clock``, ``wait``, ``think`` and ``finish``."""

from __future__ import annotations

import ast
import asyncio
import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from palaver.errors import ToolError
from palaver.tools.declaration import tool
from palaver.vocabulary.durations import names_a_zone

_MAX_POWER: Final = 1000
_MAX_DIGITS: Final = 2000
_BINARY: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


@tool(idempotent=True, inline=True, timeout=5)
def calculator(expression: Annotated[str, Field(max_length=500)]) -> str:
    """Evaluate an arithmetic expression with + - * / // % ** and parentheses."""
    try:
        return str(_value(ast.parse(expression.strip(), mode="eval").body))
    except (SyntaxError, ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"cannot evaluate {expression!r}: {error}") from None


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _value(left), _value(right)
            # A power tower would hold the loop for minutes.
            large = abs(b) > _MAX_POWER or (isinstance(a, int) and a.bit_length() > _MAX_DIGITS)
            if isinstance(op, ast.Pow) and large:
                raise ValueError("the power is too large")
            result = _BINARY[type(op)](a, b)
            if isinstance(result, complex):
                raise ValueError("the result is not a real number")
            if isinstance(result, int) and result.bit_length() > 3 * _MAX_DIGITS:
                raise ValueError("the result has too many digits")
            return result
    raise ValueError(f"{type(node).__name__} is not arithmetic")


@tool(idempotent=True, inline=True, timeout=5)
def clock(timezone: str = "UTC") -> str:
    """The current date and time in an IANA time zone, e.g. Europe/Berlin."""
    try:
        if not names_a_zone(timezone):
            raise ValueError
        zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(f"unknown time zone {timezone!r}; use an IANA name such as Europe/Berlin") from None
    return datetime.now(zone).isoformat(timespec="seconds")


@tool(idempotent=True, timeout=3660)
async def wait(seconds: Annotated[float, Field(ge=0, le=3600)]) -> str:
    """Do nothing for some seconds, at most an hour."""
    await asyncio.sleep(seconds)
    return f"waited {seconds:g} s"


@tool(idempotent=True, inline=True, timeout=5)
def think(thought: Annotated[str, Field(max_length=100_000)]) -> str:
    """Write a thought down, to plan or to weigh what was found. It does nothing and finds nothing new."""
    return "The thought is written down."


@tool(idempotent=True, inline=True, timeout=5, ends_run=True)
def finish(message: Annotated[str, Field(max_length=100_000)]) -> str:
    """End the task, once it is done or cannot be done, with a message for the user that says what came of it."""
    return message
