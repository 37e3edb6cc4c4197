"""The output of tools and of the processes that they start: a part of it goes to the worker's log, line by line, with
the step in front.

A pipe for each child stands in the place of its standard output and error. A thread of the child reads it; when the
child dies, its parent reads the rest. It holds 256 KiB, so that even a tool that keeps the interpreter can print some
without anybody who reads.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import sys
import threading
from typing import Final, TextIO

from palaver.vocabulary.limits import count_exceeded

from .descriptors import private_copy
from .slots import Slots

log = logging.getLogger("palaver.workers.children.output")

_PIPE: Final = 1 << 18
"""Linux lets all pipes of a user have 64 MiB together; a worker with a hundred children leaves some for others."""
_CHUNK: Final = 1 << 16
SHORT: Final = 64
"""Bytes of a line, on the average, for as many as the limit of bytes allows: the log puts as much in front of each."""
_OUTSIDE: Final = "outside a step"


class Pipes:
    """In the main process: the pipes of the children, by their places in the pool."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._ends: dict[int, tuple[int, int | None]] = {}

    def open(self, place: int) -> None:
        """Prepare for a child that is about to be started in this place; log the rest of the output of the one
        before."""
        self.close(place)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE)
        self._ends[place] = reading, writing

    def started(self, place: int) -> None:
        """Close the child's ends once it was started and has them."""
        reading, writing = self._ends[place]
        if writing is not None:
            os.close(writing)
        self._ends[place] = reading, None

    def close(self, place: int) -> None:
        """The child is gone."""
        if place in self._ends:
            reading, _ = self._ends.pop(place)
            rest = _read(reading)
            os.close(reading)
            if rest and self._slots.may_say_secrets(place):
                log.warning("a child that is gone: its last %d bytes are not logged: they may have secrets", len(rest))
                return
            for line in rest[-_CHUNK:].splitlines()[-20:]:
                log.warning("a child that is gone: %s", readable(line))

    def taken(self, place: int) -> tuple[int, int]:
        """In a child: the ends of its own; those of others are closed. One that was not forked has a pipe that is not
        reads when it is gone."""
        if place not in self._ends:
            self.open(place)
        reading, writing = self._ends.pop(place)
        assert writing is not None  # the parent closes it once it has forked
        for others, _ in self._ends.values():
            os.close(others)
        self._ends.clear()
        return reading, writing


class Output:
    """In a child: standard output and error are the pipe from here on; what this process logs is not."""

    def __init__(self, ends: tuple[int, int], most: int) -> None:
        self._reading, self._writing = ends
        self._most = most
        self._streams: dict[str, TextIO] = {}
        self._lock = threading.Lock()
        self._new_step(_OUTSIDE)
        _keep_logging_to(open(private_copy(2), "w", buffering=1, errors="backslashreplace"))  # noqa: SIM115  # till the end
        self.restore()
        threading.Thread(target=self._follow, name="output", daemon=True).start()

    def begin(self, step: str) -> None:
        """Count all that is printed from here on as this step's."""
        with self._lock:
            self._new_step(step)

    def end(self) -> None:
        """The step is over: log the rest, and say how much was left out.

        Raises:
            OSError: the tool has closed what is needed here.
        """
        self.restore()
        with self._lock:
            self._take(_read(self._reading))
            self._line(self._partial)
            if self._more:
                count_exceeded("tool_output")
                log.warning("%s: … %s bytes more left out", self._step, f"{self._more:,}")
            self._new_step(_OUTSIDE)

    def restore(self) -> None:
        """Whatever a tool has done to them, the streams are the pipe again."""
        for number, name in (1, "stdout"), (2, "stderr"):
            stream = getattr(sys, name, None)
            with contextlib.suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
            os.dup2(self._writing, number)
            own = self._streams.get(name)
            if own is None or own.closed or own is not stream:
                made = open(number, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
                self._streams[name] = made
                setattr(sys, name, made)
                setattr(sys, f"__{name}__", made)

    def _new_step(self, step: str) -> None:
        self._step, self._partial = step, b""
        self._left, self._lines, self._more = self._most, self._most // SHORT, 0

    def _follow(self) -> None:
        waiting = select.poll()
        waiting.register(self._reading, select.POLLIN)
        while True:
            waiting.poll()
            with self._lock:
                self._take(_read(self._reading, _CHUNK))

    def _take(self, printed: bytes) -> None:
        taken = printed[: self._left]
        self._left -= len(taken)
        self._more += len(printed) - len(taken)
        *lines, self._partial = (self._partial + taken).split(b"\n")
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if self._lines > 0:
            self._lines -= 1
            if line:
                log.warning("%s: %s", self._step, readable(line))
        else:
            self._more += len(line) + 1


def _read(reading: int, most: int = 8 * _PIPE) -> bytes:
    """Read what is there, without waiting."""
    chunks = []
    with contextlib.suppress(BlockingIOError, InterruptedError):
        while most > 0 and (chunk := os.read(reading, _CHUNK)):
            chunks.append(chunk)
            most -= len(chunk)
    return b"".join(chunks)


def readable(line: bytes) -> str:
    """Without what would play tricks on a terminal, or look like a line of the log's own."""
    text = line.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in text)


def _keep_logging_to(stream: TextIO) -> None:
    """Handlers of logs that write to standard error write to ``stream``."""
    loggers = [logging.getLogger(), *(logger for logger in logging.root.manager.loggerDict.values())]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.__stderr__, sys.stderr):
                handler.setStream(stream)
