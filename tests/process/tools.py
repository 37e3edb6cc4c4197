"""Tools of the workers under test (PALAVER_TOOLS). Each writes when it begins and ends to the file TOOL_LEDGER."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from celery import current_task
from pydantic import Field

from palaver import ImagePart, ToolContext, tool
from palaver.processes.failpoints import failpoint
from palaver.tools import RetryableToolError, Tool, ToolError

_COARSE = 5
"""Linux's CLOCK_REALTIME_COARSE, right where a test has made this process's clock wrong (clocks.py)."""
Seconds = Annotated[float, Field(ge=0, le=60)]


def _write(event: str, name: str, **more: Any) -> None:
    # The task id names run, step and call; the delivery number behind the last colon does not matter.
    call = current_task.request.id.rpartition(":")[0] if current_task else ""
    line = {"event": event, "tool": name, "call": call, "pid": os.getpid(), "at": time.clock_gettime(_COARSE), **more}
    ledger = os.open(os.environ["TOOL_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(ledger, json.dumps(line).encode() + b"\n")
    os.close(ledger)
    if event == "begin":
        failpoint("tool.effect")


def write_async(event: str, name: str, context: ToolContext) -> None:
    """As other tools do, on a loop that has no task of its own: a key names run, step and call, as a task's id does."""
    _write(event, name, call=context.idempotency_key.rpartition(":")[0])


def read_tool_ledger(path: Path, begin: int = 0) -> list[dict[str, Any]]:
    """What the tools have written so far, in order; without the first `begin` bytes."""
    return [json.loads(line) for line in path.read_bytes()[begin:].splitlines()] if path.exists() else []


def _shut(gate: str) -> Iterator[float]:
    """Yield pauses, in seconds, until the gate is open; a minute at most. Words that a model makes up are no gate."""
    until = time.monotonic() + 60
    while gate.startswith("/") and not Path(gate).exists() and time.monotonic() < until:
        yield 0.01


def _recorded(name: str, seconds: float, gate: str) -> str:
    _write("begin", name)
    time.sleep(seconds)
    for pause in _shut(gate):
        time.sleep(pause)
    _write("end", name)
    return "recorded"


@tool
def record(seconds: Seconds = 0, at_gate: str = "") -> str:
    """Must not run twice."""
    return _recorded("record", seconds, at_gate)


@tool(idempotent=True)
def record_idempotent(seconds: Seconds = 0, at_gate: str = "") -> str:
    """May run twice."""
    return _recorded("record_idempotent", seconds, at_gate)


@tool
async def record_async(context: ToolContext, seconds: Seconds = 0, at_gate: str = "") -> str:
    """Must not run twice, and has company on its loop."""
    write_async("begin", "record_async", context)
    await asyncio.sleep(seconds)
    for pause in _shut(at_gate):
        await asyncio.sleep(pause)
    write_async("end", "record_async", context)
    return "recorded"


@tool(ends_run=True)
def hand_over(to: str) -> str:
    """Ends the run, from a process of its own."""
    _write("begin", "hand_over")
    _write("end", "hand_over")
    return f"over to {to}"


@tool(ends_run=True)
def refuse_to_end(why: str) -> str:
    """Would end the run."""
    raise ToolError(f"not yet: {why}")


@tool(idempotent=True)
def screenshot(place: str) -> list[Any]:
    """What a place looks like."""
    dot = bytes.fromhex("89504e470d0a1a0a") + place.encode()
    return [f"This is {place}.", ImagePart.of(dot, "image/png")]


@tool(idempotent=True)
def poster(width: int) -> ImagePart:
    """A picture as large as asked for."""
    return ImagePart.of(b"x" * width, "image/png")


def _told(context: ToolContext) -> dict[str, Any]:
    """Everything that the context says, for a test to compare."""
    names = (each.name for each in fields(context) if each.name not in {"report", "deadline"})
    return {name: getattr(context, name) for name in names} | {
        "metadata": dict(context.metadata),
        "in_time": 0 < context.time_left <= 30,
    }


@tool(idempotent=True)
def tell(context: ToolContext) -> dict[str, Any]:
    """Says what it knows of its call; the first try of each call asks for another."""
    _write("begin", "tell", key=context.idempotency_key)
    if context.attempt == 1:
        raise RetryableToolError("once more", retry_after=0)
    return _told(context)


@tool
async def tell_async(word: str = "", *, here: ToolContext) -> dict[str, Any]:
    """Says what it knows of its call, on the loop."""
    return _told(here)


@tool(inline=True)
def tell_inline(context: ToolContext) -> dict[str, Any]:
    """Says what it knows of its call, in the model worker."""
    return _told(context)


@tool(idempotent=True)
def tell_and_crash(context: ToolContext) -> dict[str, Any]:
    """Its process is gone before the first try has an answer."""
    _write("begin", "tell_and_crash", key=context.idempotency_key)
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return _told(context)


@tool
def advance(context: ToolContext) -> str:
    """Says how far it is, until its run is cancelled."""
    _write("begin", "advance")
    for number in range(10_000_000):
        context.progress(f"{number} \ud800 of 10000000 files", fraction=number / 10_000_000)
    return "unreachable"


@tool(timeout=0.3)
def nap(seconds: Seconds = 30) -> str:
    """Overruns, and gives in when it is told to stop."""
    _write("begin", "nap")
    time.sleep(seconds)
    return "slept"


@tool(timeout=0.3)
def overrun() -> str:
    """Overruns, whatever the model asks for."""
    _write("begin", "overrun")
    time.sleep(30)
    return "unreachable"


@tool
def collect_garbage() -> str:
    """What nobody holds any more goes now, and with it the exceptions that nobody looked at."""
    _write("begin", "collect_garbage")
    gc.collect()
    time.sleep(0.3)
    return "collected"


@tool(timeout=0.3)
def busy(seconds: Seconds = 30) -> str:
    """Overruns, and does not give in."""
    _write("begin", "busy")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(0.01)
        except BaseException:  # What such a tool does.
            continue
    return "done"


@tool(timeout=40)
def frozen_in_time(seconds: int = 30) -> str:
    """Keeps Python's lock, and does not overrun."""
    _write("begin", "frozen_in_time")
    ctypes.PyDLL(None).sleep(seconds)
    return "thawed"


@tool
def looked_through() -> list[int]:
    """How many objects its process looks through for garbage, and how many never."""
    return [len(gc.get_objects()), gc.get_freeze_count()]


@tool
def crash() -> str:
    """Takes its process along."""
    _write("begin", "crash")
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


@tool(idempotent=True)
def crash_idempotent() -> str:
    """Takes its process along each time."""
    _write("begin", "crash_idempotent")
    os._exit(13)


@tool
def leave() -> str:
    """Calls what ends a script."""
    sys.exit(3)


@tool(idempotent=True)
async def leave_async() -> str:
    """Calls what ends a script, in a coroutine."""
    sys.exit(3)


@tool
def fail() -> str:
    """Raises."""
    raise ValueError("no such city")


@tool
def flaky() -> str:
    """Works the second time."""
    _write("begin", "flaky")
    mine = current_task.request.id.rpartition(":")[0]
    if sum(line["call"] == mine for line in read_tool_ledger(Path(os.environ["TOOL_LEDGER"]))) < 2:
        raise RetryableToolError("try again")
    return "worked"


@tool
def unready() -> str:
    """Asks to be tried again, each time."""
    _write("begin", "unready")
    raise RetryableToolError("not yet")


@tool(inline=True)
def crash_inline() -> str:
    """Takes the model worker along."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


@tool(inline=True)
def leave_inline() -> str:
    """Calls what ends a script, in the model worker."""
    sys.exit(3)


@tool(idempotent=True)
async def give_up_async() -> str:
    """Raises what a cancelled coroutine raises, though nobody cancelled it."""
    raise asyncio.CancelledError


@tool(inline=True)
def long_text() -> str:
    """More than some windows hold."""
    return "far too much " * 1000


@tool
def linger(seconds: Seconds = 30) -> str:
    """Takes long unless it is told otherwise, and gives in; must not run twice."""
    _write("begin", "linger")
    time.sleep(seconds)
    return "lingered"


@tool(risky=True)
def send(seconds: Seconds = 0) -> str:
    """Needs an approval, and must not run twice."""
    _write("begin", "send")
    time.sleep(seconds)
    _write("end", "send")
    return f"sent after {seconds:g} s"


@tool(risky=True)
def refund(amount: int) -> str:
    """Pays money back, and must not run twice."""
    _write("begin", "refund", amount=amount)
    _write("end", "refund")
    return f"paid {amount}"


@tool(inline=True)
def refund_inline(amount: int) -> str:
    """The same in the model worker; nobody has declared it risky."""
    _write("begin", "refund_inline", amount=amount)
    return f"paid {amount}"


@tool
def stubborn(seconds: Seconds = 30) -> str:
    """Has time, and does not give in."""
    return str(busy.call(seconds))


class _Odd(Tool):
    """A tool whose arguments cannot even be looked at: an error that no part of a worker expects."""

    def parse(self, arguments: str) -> dict[str, Any]:
        raise RuntimeError("nobody foresaw this")


@tool(name="odd")
def _odd(text: str) -> str:
    """Its arguments cannot even be looked at."""
    return text


odd = _Odd(**{each.name: getattr(_odd, each.name) for each in fields(_odd)})
del _odd


@tool(inline=True)
def census() -> str:
    """How many objects the model worker keeps, by class; those of its engine and of its connections. And ``garbage``:
    how many only the collector could free so far."""
    gc.collect()
    names = (f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    ours = ("workers", "palaver", "asyncio", "_asyncio", "aiohttp", "httpx", "redis", "celery", "kombu")
    garbage = sum(generation["collected"] for generation in gc.get_stats())
    return json.dumps({**Counter(name for name in names if name.startswith(ours)), "garbage": garbage})
