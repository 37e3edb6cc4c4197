"""Standard output as a module finds it that a worker's main process imports."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class LaterOutput(io.TextIOBase):
    """Stands for standard output or error in what a module makes of it when it is imported, such as a handler of logs.

    It has a descriptor, as a file has. What is written to it goes where output goes by then: to the worker's log, once
    there is one.
    """

    def __init__(self, name: str, file: TextIO) -> None:
        self._name = name
        self._file = file

    def write(self, text: str) -> int:
        """Write a text."""
        return self._now.write(text)

    def flush(self) -> None:
        """Have it written."""
        self._now.flush()

    def fileno(self) -> int:
        """The descriptor of the process's own."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Tell whether that is a terminal."""
        return self._file.isatty()

    def writable(self) -> bool:
        """Yes."""
        return True

    @property
    def buffer(self) -> Any:
        """Its bytes, for what writes no text."""
        return self._file.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute of others
        """That of the process's own."""
        return self._file.encoding

    @property
    def _now(self) -> TextIO:
        stream: TextIO | LaterOutput | None = getattr(sys, self._name)
        return self._file if stream is None or isinstance(stream, LaterOutput) else stream


@contextmanager
def importing() -> Iterator[None]:
    """Within the block, output goes through an `LaterOutput` each."""
    whole = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = LaterOutput("stdout", whole[0]), LaterOutput("stderr", whole[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = whole
