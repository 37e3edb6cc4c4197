"""Async tools that do not behave. `record_async`, which does, is in tools.py."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from pathlib import Path

from palaver import ToolContext, tool
from tests.process.tools import write_async


@tool(timeout=0.3)
async def overrun_async() -> str:
    """Overruns, and gives in."""
    await asyncio.sleep(60)
    return "unreachable"


async def _deaf(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue


@tool(timeout=0.3)
async def deaf_async() -> str:
    """Overruns, and does not give in."""
    await _deaf(30)
    return "unreachable"


@tool
async def deaf_for_long_async(context: ToolContext) -> str:
    """Has time, and does not give in."""
    write_async("begin", "deaf_for_long_async", context)
    await _deaf(20)
    return "unreachable"


@tool(idempotent=True)
async def poison_async(context: ToolContext) -> str:
    """Takes its process along each time, and whatever else runs there."""
    write_async("begin", "poison_async", context)
    ctypes.string_at(0)
    return "unreachable"


@tool(idempotent=True)
async def sleep_async(seconds: float, context: ToolContext) -> str:
    """Behaves, and may be started again."""
    write_async("begin", "sleep_async", context)
    await asyncio.sleep(seconds)
    return "slept"


@tool
async def freeze_async(context: ToolContext) -> str:
    """Keeps Python's lock: nothing of the process goes on."""
    write_async("begin", "freeze_async", context)
    ctypes.PyDLL(None).sleep(60)
    return "unreachable"


@tool
async def tell_secret_async(context: ToolContext) -> str:
    """Tells it in every way, while others do."""
    await asyncio.sleep(0.2)
    value = context.secret("TOKEN")
    context.progress(f"reported: {value}")
    print(f"printed: {value}")
    print("x" * 100_000)
    logging.getLogger("loop_tools").warning("logged: %s", value)
    await asyncio.sleep(0.2)
    return f"the token is {value}"


@tool
async def look_around_async() -> list[str]:
    """What of Palaver's there is in its environment, and in that which /proc shows."""
    return [name for name in os.environ if name.startswith("PALAVER_")] + _shown()


def _shown() -> list[str]:
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    ours = (entry.partition(b"=") for entry in entries if entry.startswith(b"PALAVER_"))
    return [name.decode() for name, _, value in ours if value.strip(b"x")]
