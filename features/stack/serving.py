"""The program behind ``palaver serve``: the parent of the API and its workers on one machine.

Its own part in it is small: to start again what ends, to pass on what they write, and to end them in order.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from palaver.config.exits import refusing, written_out
from palaver.telemetry import logs

from .child_output import Relay, write
from .plan import COMMANDS
from .ports import EVERY_ADDRESS, HOST
from .redis_config import redis_config, room_of
from .running import keep_running
from .stack import Stack
from .surroundings import Surroundings

_READY_WITHIN: Final = 300.0
"""Seconds: a Redis with much in its file takes long to load it."""
_AFTER_GRACE: Final = 10.0
"""Seconds beyond PALAVER_DRAIN_GRACE until what has not ended is killed."""
_OF_SYSTEMD: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables for this process alone."""
_WIDTH: Final = len("worker-1")


def main() -> None:
    """Start all of it, and again what ends, until a signal. Raises SystemExit, with a sentence, if it cannot."""
    logs.serve_json()
    words = argparse.ArgumentParser(prog="palaver serve")
    words.add_argument("--workers", type=int, default=1)
    words.add_argument("--grace", type=float, default=10.0)
    words.add_argument("--redis-memory", type=int)
    words.add_argument("--blocking", action="store_true")
    words.add_argument("--line", action="append", default=[])
    given = words.parse_args()
    systemd = {name: os.environ.pop(name, "") for name in _OF_SYSTEMD}["NOTIFY_SOCKET"]
    with refusing():
        here = Surroundings.of(os.environ)
        stack = stack_of(
            here,
            workers=given.workers,
            blocking=given.blocking,
            redis_memory=given.redis_memory,
            grace=given.grace,
        )

    def ready() -> None:
        room = None if here.redis_url else room_of(given.redis_memory)
        for line in welcome(stack, given.workers, room, given.line):
            say(line)
        if systemd:
            _tell(systemd)

    keep_running(stack, here.redis_url, ready, say)


def stack_of(here: Surroundings, *, workers: int, blocking: bool, redis_memory: int | None, grace: float) -> Stack:
    """Return the stack: the API, ``workers`` that do model steps and tools, and one with processes for tools if some
    are ``blocking``."""
    commands = {"api": COMMANDS["api"], "worker": (*COMMANDS["worker"], "--tools")}
    if blocking:
        commands["tools"] = COMMANDS["tools"]
    return Stack(
        here.data_dir,
        ports=here.ports,
        host=os.environ.get("PALAVER_HOST") or HOST,
        processes={"fake_provider": 0, "worker": workers},
        commands=commands,
        environment=here.variables,
        redis_config=redis_config(redis_memory),
        redis_url=here.redis_url,
        output=lambda name: Relay(line_of(name)),
        progress=True,
        deadline=_READY_WITHIN,
        grace=grace + _AFTER_GRACE,
        report=say,
    )


def welcome(stack: Stack, workers: int, redis_room: int | None, lines: Sequence[str]) -> Sequence[str]:
    """Return lines that say what serves, and for each part what to set when there is more than it can take.
    ``redis_room`` is what its own Redis may hold, in MiB; None if it is another one."""
    more = f"`palaver serve --workers {workers + 1}` has one more"
    redis = "the one of PALAVER_REDIS_URL"
    if redis_room is None:
        more += ", `palaver worker --tools` on other machines more of them"
    else:
        durable = "on the disk within a second (appendfsync everysec)"
        redis = f"its own, up to {redis_room} MiB, {durable}; PALAVER_REDIS_URL=redis://HOST:6379/0 has one elsewhere"
    parts = [f"Redis     {redis}", f"workers   {workers}, for model steps and tools; {more}", *lines]
    # Such a host is no address to open.
    open_to = ", and at every address of this machine" if stack.host in EVERY_ADDRESS else ""
    return [f"serving at {stack.url}{open_to}", f"  data      {stack.data_dir}", *(f"  {part}" for part in parts)]


def line_of(name: str) -> Callable[[bytes], bytes]:
    """Return what makes a line of this process's output from one of a child: with its name in front, or as JSON if all
    lines are."""
    if os.environ.get("PALAVER_LOG_FORMAT") != "json":
        prefix = f"{name:<{_WIDTH}} | ".encode()
        return lambda line: prefix + line

    def as_json(line: bytes) -> bytes:
        if line.startswith(b"{"):
            return line
        text = line.decode(errors="replace").rstrip()
        return f"{logs.sentence(f'{name}: {text}', logging.INFO)}\n".encode()

    return as_json


def say(line: str) -> None:
    """Write a line of this process's own."""
    if os.environ.get("PALAVER_LOG_FORMAT") == "json":
        write(f"{logs.sentence(line, logging.INFO)}\n".encode())
    else:
        write(line_of("palaver")(f"{line}\n".encode()))


def _tell(systemd: str) -> None:
    """Say that it serves."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(b"READY=1", systemd.replace("@", "\0", 1))


if __name__ == "__main__":
    with written_out():
        main()
