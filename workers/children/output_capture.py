"""The output of tools that share a process: as much of each call goes to the worker's log as of one in a child.

This is only for what Python prints. It is logged where it is printed, so that each line is known to be of its run, and
the secrets of its conversation are taken out.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from palaver.tools import ToolDeclaration
from palaver.vocabulary.limits import count_exceeded

from .output import SHORT, readable

log = logging.getLogger("palaver.workers.children.output_capture")


class _Room:
    """The bytes that one call may still print."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._left, self._lines, self._more = most, most // SHORT, 0
        self._partial = b""

    def take(self, printed: bytes) -> None:
        """Log the lines that are complete, as far as there is room."""
        taken = printed[: self._left]
        self._left -= len(taken)
        self._more += len(printed) - len(taken)
        *lines, self._partial = (self._partial + taken).split(b"\n")
        for line in lines:
            self._line(line)

    def close(self) -> None:
        """The call is over: log the rest, and say how much was left out."""
        self._line(self._partial)
        if self._more:
            count_exceeded("tool_output")
            log.warning("%s: … %s bytes more left out", self._name, f"{self._more:,}")

    def _line(self, line: bytes) -> None:
        if self._lines <= 0:
            self._more += len(line) + 1
        elif line:
            self._lines -= 1
            log.warning("%s: %s", self._name, readable(line))


class OutputCapture(io.TextIOBase):
    """Stands in for standard output and error."""

    encoding: Final = "utf-8"  # type: ignore[misc]  # a property of others

    def __init__(self, most: int) -> None:
        self._most = most
        self._outside = _Room("outside a call", most)
        self._room: ContextVar[_Room | None] = ContextVar("room", default=None)

    @contextmanager
    def during(self, tool: ToolDeclaration) -> Iterator[None]:
        """A context around a call: output within it is the call's own."""
        room = _Room(tool.name, self._most)
        token = self._room.set(room)
        try:
            yield
        finally:
            self._room.reset(token)
            room.close()

    def write(self, text: str) -> int:
        """Take a text from `print`."""
        (self._room.get() or self._outside).take(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writable(self) -> bool:
        """Yes."""
        return True
