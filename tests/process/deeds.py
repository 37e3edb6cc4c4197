"""The deed that tools of every source do in the cases of test_every_source.py, and the count of it on the other side.

Whoever does one writes to a file, DEEDS: ``begin KEY``, then ``end KEY``, or ``left KEY`` if the caller has gone. Only
the standard library is needed: one of the sources is a program that starts with nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LARGE = 1 << 20
"""Characters of a large result."""
ROOM = 4 << 30
TOO_MUCH = 1 << 42
"""Bytes that a process has room for, and that a deed wants."""
MANY = 256
"""Tools of a source that has many."""
PNG = bytes.fromhex("89504e470d0a1a0a") + b"a dot"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"do": {"type": "string"}, "key": {"type": "string"}},
    "required": ["do", "key"],
}
LONGEST = 120.0
"""Seconds that a deed waits if nobody lets it go on."""
_NAP = 0.2
_LOOK = 0.02
"""Seconds between two looks."""


def ledger() -> Path:
    """The file."""
    return Path(os.environ["DEEDS"])


def note(line: str) -> None:
    """Add a line to it."""
    file = os.open(ledger(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def gate(key: str) -> Path:
    """The file that lets a deed that waits go on."""
    return ledger().with_name(f"gate-{key}")


def nothing(text: str, fraction: float) -> None:
    """Where nobody hears of progress."""


def begin(do: str, key: str, progress: Callable[..., None] = nothing) -> float:
    """Begin; return the seconds that it takes at most.

    Raises:
        ValueError: that is the deed.
        MemoryError: there is too little for it.
    """
    note(f"begin {key}")
    if do == "fail":
        raise ValueError("no such city")
    if do == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "eat":
        bytearray(TOO_MUCH)
    if do == "wait":
        progress("half of it", fraction=0.5)
    return {"wait": LONGEST, "nap": _NAP}.get(do, 0.0)


def end(do: str, key: str, secret: str = "", image: object = None) -> Any:
    """End; return the result."""
    note(f"end {key}")
    match do:
        case "large":
            return "x" * LARGE
        case "image":
            return image
        case "tell":
            return f"the token is {secret}"
    return f"did {key}"


def deed(do: str, key: str, secret: str = "", image: object = None, progress: Callable[..., None] = nothing) -> Any:
    """Do it in this thread."""
    until = time.monotonic() + begin(do, key, progress)
    try:
        while time.monotonic() < until and not gate(key).exists():
            time.sleep(_LOOK)
    except BaseException:
        note(f"left {key}")
        raise
    return end(do, key, secret, image)


async def deed_async(
    do: str, key: str, secret: str = "", image: object = None, progress: Callable[..., None] = nothing
) -> Any:
    """Do it on a loop."""
    until = time.monotonic() + begin(do, key, progress)
    try:
        while time.monotonic() < until and not gate(key).exists():  # noqa: ASYNC110  another process makes the file
            await asyncio.sleep(_LOOK)
    except asyncio.CancelledError:
        note(f"left {key}")
        raise
    return end(do, key, secret, image)
