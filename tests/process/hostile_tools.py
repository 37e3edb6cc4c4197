"""Tools that go too far, by mistake or by intent (PALAVER_TOOLS of test_hostile_tools.py)."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from palaver import tool
from palaver.errors import StaleLease
from workers.sources.containment import Interrupted

BRIEF = 0.5
"""Seconds that a tool may take which takes longer."""
LEFT_BEHIND = "86399.25"
"""How long a process sleeps that a tool leaves behind; nobody else's does."""
CANARY = "sk-canary-of-a-provider-0123456789"
KEY_OF_THE_API = "canary-of-the-api-0123456789"


# It ends its process.


@tool
def exits() -> str:
    """Leaves without a word."""
    os._exit(0)


@tool
def segfaults() -> str:
    """Reads where nothing is."""
    return str(ctypes.string_at(0))


@tool
def aborts() -> str:
    """As a library in C does that finds its heap broken, and says so."""
    os.write(2, b"the heap is broken\n")
    os.abort()


@tool
def kills_its_group() -> str:
    """As a script does that cleans up behind itself: it must not reach the worker."""
    os.killpg(0, signal.SIGTERM)
    time.sleep(10)
    return "alive"


EVERY_FILE = range(3, 64)
"""Descriptors beyond the standard streams."""
GARBAGE = {
    "zeros": bytes(1088),
    "letters": b"x" * 1088,
    "negative": b"\xff" * 1088,
    "half": (4096).to_bytes(4, "big") + b"h" * 1084,
}
"""As the start of a message between a child and its worker: an empty one, one of 2 GB, of less than nothing, half."""


@tool
def writes_everywhere(what: str) -> str:
    """As a library that logs to the wrong descriptor; and nobody waits on it any more."""
    for number in EVERY_FILE:
        with contextlib.suppress(OSError):
            os.set_blocking(number, False)
            os.write(number, GARBAGE[what])
    return "written"


@tool
def lists_files() -> str:
    """What is open in its process besides the standard streams, and is no /dev/null."""
    found = (Path(f"/dev/fd/{number}") for number in EVERY_FILE)
    return json.dumps([name for each in found if each.is_symlink() and (name := os.readlink(each)) != os.devnull])


@tool
def closes_everything() -> str:
    """Also the sockets to Redis and the pipes to its worker."""
    os.closerange(0, 4096)
    return "closed"


# It overruns, and does what it can to go on.


@tool(timeout=BRIEF)
def holds_the_interpreter() -> str:
    """Without the timer that some set for that case; no other thread of its process runs."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    ctypes.PyDLL(None).sleep(60)
    return "thawed"


@tool(timeout=BRIEF)
def stops_itself() -> str:
    """Gets no processor any more, and hears no signal but two."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return "continued"


@tool(timeout=BRIEF)
def is_deaf() -> str:
    """Blocks and ignores every signal."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(60)
    return "slept"


@tool(timeout=BRIEF)
def catches_everything() -> str:
    """Whatever is raised in it."""
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            continue


@tool(timeout=BRIEF)
def waits_for_itself() -> str:
    """A deadlock."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
    return "got it"


@tool(timeout=BRIEF)
async def blocks_the_loop() -> str:
    """A coroutine that never lets go: nothing renews its lease."""
    ctypes.CDLL(None).sleep(60)
    return "slept"


@tool(timeout=BRIEF)
async def swallows_cancels() -> str:
    """A coroutine that cannot be cancelled."""
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue


@tool(timeout=BRIEF)
def waits_for_a_process() -> str:
    """Which waits, too, in a session of its own."""
    subprocess.run(["sleep", LEFT_BEHIND], start_new_session=True, check=False)
    return "done"


# It leaves something behind.


@tool
def leaves_a_daemon() -> str:
    """Forked twice, in a session of its own, deaf to what asks it to end."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execvp("sleep", ["sleep", LEFT_BEHIND])
        os._exit(0)
    return "left"


@tool
def forks_and_goes_on() -> str:
    """Two processes go on with what follows the tool."""
    os.fork()
    return "forked"


@tool
def starts_many_processes() -> str:
    """Each with another below it."""
    for _ in range(20):
        subprocess.Popen(["sh", "-c", f"sleep {LEFT_BEHIND} & wait"])
    return "started"


@tool
def dies_above_a_process() -> str:
    """Whose parent is gone, then."""
    subprocess.Popen(["sleep", LEFT_BEHIND], start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return "dead"


@tool
def starts_many_threads() -> str:
    """None of them ends soon, and each must before the process does."""
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(60,)).start()
    atexit.register(time.sleep, 60)
    return "started"


@tool
def leaves_a_thread_that_takes_all() -> str:
    """It keeps the interpreter when the call is over; says which process it is."""

    def take_all() -> None:
        time.sleep(0.5)
        ctypes.PyDLL(None).sleep(60)

    threading.Thread(target=take_all).start()
    return str(os.getpid())


@tool
def changes_its_surroundings() -> str:
    """What later calls of this process would find; says which process it is."""
    os.chdir("/")
    os.umask(0)
    os.environ["LEFT_BY_A_TOOL"] = "yes"
    os.environ.pop("PATH")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    sys.setrecursionlimit(20_000)
    sys.stdout.close()
    sys.stderr = None
    for number in range(3):
        os.close(number)
    return str(os.getpid())


@tool
def looks_around() -> dict[str, Any]:
    """What it finds."""
    print("a line of its own")
    umask = os.umask(0)
    os.umask(umask)
    return {
        "pid": os.getpid(),
        "directory": os.getcwd(),
        "umask": umask,
        "left": "LEFT_BY_A_TOOL" in os.environ,
        "path": "PATH" in os.environ,
        "handler": callable(signal.getsignal(signal.SIGUSR2)),
        "recursion": sys.getrecursionlimit() < 20_000,
    }


# It is too much.


@tool
def eats_memory() -> str:
    """And keeps it until somebody minds."""
    eaten = [bytearray(b"x" * (50 << 20)) for _ in range(12)]
    time.sleep(20)
    return str(len(eaten))


@tool
def feeds_a_process() -> str:
    """Which eats memory."""
    subprocess.run([sys.executable, "-c", "import time; eaten = b'x' * (600 << 20); time.sleep(20)"], check=False)
    return "fed"


@tool
def has_eaten() -> str:
    """Too much to be kept, not too much to go on; says which process it is."""
    eaten = b"x" * (280 << 20)
    return f"{os.getpid()} {len(eaten)}"


@tool
def burns_the_processor() -> str:
    """For as long as it may."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        pass
    return "burnt"


@tool
def floods() -> str:
    """Prints 40 MB, itself and by a process."""
    print("\x1b[2Jfirst line\x07")
    for _ in range(200):
        print("o" * 100_000)
    subprocess.run(["sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' p"], check=True)
    os.write(2, b"last line\n")
    return "printed"


@tool
def floods_with_lines() -> str:
    """A hundred thousand."""
    os.write(1, b"\n" * 50_000)
    for number in range(50_000):
        print(number)
    return "printed"


@tool
def answers_much() -> str:
    """300 MB."""
    return "x" * (300 << 20)


@tool
def answers_a_gigabyte() -> list[str]:
    """In a list."""
    return ["x" * (1 << 30)]


@tool
def answers_for_ever() -> Any:
    """A set that does not end."""

    class Endless(set[str]):
        def __iter__(self) -> Iterator[str]:
            while True:
                yield "o" * 1000

    return Endless()


# What it answers or raises cannot be told.


@tool
def answers_a_generator() -> Iterator[int]:
    """Nothing of it."""
    return (each for each in range(3))


@tool
def answers_in_parts() -> AsyncIterator[int]:
    """An asynchronous generator."""

    async def parts() -> AsyncIterator[int]:
        yield 1

    return parts()


@tool
def answers_a_circle() -> list[Any]:
    """It has itself in it."""
    circle: list[Any] = []
    circle.append(circle)
    return circle


@tool
def answers_a_long_number() -> int:
    """With more digits than Python writes."""
    return 10**10_000


@tool
def answers_bytes() -> bytes:
    """That are no text."""
    return b"\xff\xfe bytes"


@tool
def answers_no_number() -> list[float]:
    """As measured."""
    return [float("nan"), float("inf")]


@tool
def answers_with_a_trap() -> Any:
    """It ends whoever asks for its text."""

    class Trap:
        def __str__(self) -> str:
            raise SystemExit("caught")

    return {"a": [Trap()]}


@tool
def raises_much() -> str:
    """100 MB."""
    raise ValueError("x" * (100 << 20))


@tool
def raises_a_trap() -> str:
    """It cannot be asked what happened."""

    class Trap(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    raise Trap


@tool
def recurses() -> str:
    """Without end."""
    return str(recurses())


@tool
def raises(name: str) -> str:
    """What means something to whoever runs the tool."""
    orders: dict[str, type[BaseException]] = {
        each.__name__: each
        for each in (StaleLease, GeneratorExit, Interrupted, KeyboardInterrupt, SystemExit, BaseException)
    }
    raise orders[name]


# It is out for secrets.


@tool
def looks_for_keys() -> dict[str, bool]:
    """In the environments that it finds."""
    found = {"os.environ": "\n".join(f"{name}={value}" for name, value in os.environ.items())}
    found["a process"] = subprocess.run(["env"], capture_output=True, check=True, text=True).stdout
    for name, pid in ("its own", os.getpid()), ("its worker's", os.getppid()):
        found[name] = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    telling = (CANARY, KEY_OF_THE_API, "redis://")
    return {name: any(each in text for each in telling) for name, text in found.items()} | {
        "what it needs": "NEEDED_BY_TOOLS" in os.environ
    }
