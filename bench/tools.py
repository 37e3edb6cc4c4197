"""Python tools: one that costs nothing, and some that a cancel has to end, which tell the process that they run in."""

from __future__ import annotations

import os
import time

from palaver import tool


def _tell() -> None:
    with open(os.environ["BENCH_TOOL_PIDS"], "a") as told:
        told.write(f"{os.getpid()}\n")


@tool(timeout=120)
def heeding(text: str = "") -> str:
    """Takes long, and stops when it is told to."""
    _tell()
    time.sleep(100)
    return text


@tool(timeout=120)
def stubborn(text: str = "") -> str:
    """Takes long, and does not stop when it is told to."""
    _tell()
    until = time.monotonic() + 100
    while time.monotonic() < until:
        try:
            time.sleep(0.01)
        except BaseException:
            continue
    return text


@tool
def add(expression: str) -> str:
    """Takes no time, in a child process."""
    return expression


@tool
async def add_async(expression: str) -> str:
    """Takes no time, on a loop."""
    return expression
