"""Waiting for a condition with a deadline: what a test does where it would otherwise sleep and hope."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast, overload

T = TypeVar("T")
PATIENCE = 300.0
"""Seconds that a test waits for what has to come before it says that it does not: what is there at once on a quiet
machine may take minutes on one that has too much to do. It bounds nothing that the product promises."""
BUSY = 10.0
"""Seconds that a machine with too much to do may take for nothing, beside whatever a test looks at."""


def eventually(condition: Callable[[], T], *, within: float = PATIENCE, every: float = 0.02, why: str = "") -> T:
    """Call `condition` until it answers something truthy, and return that.

    An exception counts as "not yet": a condition may index into what is not there so far.
    `within` and `every` are seconds. Raises AssertionError that says `why` and what the last try gave.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            value = condition()
            if value:
                return value
            last = value
        except Exception as error:
            last = error
        if time.monotonic() >= deadline:
            raise _gave_up(last, within, why)
        time.sleep(every)


@overload
async def aeventually(
    condition: Callable[[], Awaitable[T]], *, within: float = ..., every: float = ..., why: str = ...
) -> T: ...
@overload
async def aeventually(condition: Callable[[], T], *, within: float = ..., every: float = ..., why: str = ...) -> T: ...
async def aeventually(
    condition: Callable[[], T | Awaitable[T]], *, within: float = PATIENCE, every: float = 0.02, why: str = ""
) -> T:
    """`eventually` on an event loop: `condition` may be a plain or an async callable.

    A try that hangs is given up at the deadline too. Raises AssertionError like `eventually`.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            value = condition()
            if inspect.isawaitable(value):
                value = await asyncio.wait_for(value, max(deadline - time.monotonic(), every))
            if value:
                return cast(T, value)
            last = value
        except Exception as error:
            last = error
        if time.monotonic() >= deadline:
            raise _gave_up(last, within, why)
        await asyncio.sleep(every)


def _gave_up(last: object, within: float, why: str) -> AssertionError:
    """The error of a wait that ended at its deadline; an exception of the last try becomes its cause."""
    said = f"raised {last!r}" if isinstance(last, BaseException) else f"gave {last!r}"
    error = AssertionError(f"{why or 'the condition'}: not within {within:g} s; the last try {said}")
    if isinstance(last, BaseException):
        error.__cause__ = last
    return error
