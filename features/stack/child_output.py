"""Outlets of children: a file, or the output of this process itself."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Protocol

_KEPT: Final = 1_000
"""Lines of a child that are kept: more than it writes between two looks for the one that says that it is ready."""
_LONGEST: Final = 64 << 10
"""Bytes; a longer line is written as several."""
_SHOWN: Final = 2_000
"""Bytes of a line that are kept."""
_PATIENCE: Final = 5.0
"""Seconds for the last lines of a child that has ended."""
_TOLD: Final = 25
"""Lines of a log that tell why a child has ended."""
_writing = threading.Lock()


class ChildOutput(Protocol):
    """The way that the output of a child takes."""

    def opened(self) -> AbstractContextManager[IO[bytes]]:
        """A start: within the block it can be given to a child, to write to."""

    @property
    def text(self) -> str:
        """Everything that it has written since."""

    @property
    def end(self) -> str:
        """Its last lines, as the end of a sentence."""

    def finish(self) -> None:
        """Wait for the last lines of a child that has ended."""


class LogFile:
    """A file, which stays over restarts of the same child."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        path.unlink(missing_ok=True)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """As `ChildOutput`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as log:
            self._offset = log.tell()
            yield log

    @property
    def text(self) -> str:
        """As `ChildOutput`."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            return log.read().decode(errors="replace")

    @property
    def end(self) -> str:
        """As `ChildOutput`."""
        lines = self.text.splitlines()[-_TOLD:]
        return f"; the end of its log, {self._path}:\n" + "\n".join(f"    {line}" for line in lines)

    def finish(self) -> None:
        """As `ChildOutput`: the file has it."""


class Relay:
    """Each line goes on to standard output, as ``form`` makes it; the last ones are kept.

    A reader that is gone, or a full disk, loses lines and holds up no child.
    """

    def __init__(self, form: Callable[[bytes], bytes]) -> None:
        self._form = form
        self._last: deque[bytes] = deque(maxlen=_KEPT)
        self._thread: threading.Thread | None = None

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """As `ChildOutput`."""
        self.finish()
        self._last.clear()
        reading, writing = os.pipe()
        self._thread = threading.Thread(target=self._pass_on, args=(reading,), name="relay", daemon=True)
        self._thread.start()
        with os.fdopen(writing, "wb") as log:
            yield log

    @property
    def text(self) -> str:
        """As `ChildOutput`, as far back as it is kept."""
        return b"".join([*self._last]).decode(errors="replace")

    @property
    def end(self) -> str:
        """As `ChildOutput`: one line, the others stand above it."""
        return "".join(f": {line.removeprefix('palaver: ')}" for line in self.text.splitlines()[-1:])

    def finish(self) -> None:
        """As `ChildOutput`. What it has started and left behind may still write."""
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _pass_on(self, reading: int) -> None:
        with open(reading, "rb") as lines:
            while line := lines.readline(_LONGEST):
                whole = line if line.endswith(b"\n") else line + b"\n"
                self._last.append(whole if len(whole) <= _SHOWN else whole[:_SHOWN] + b"\n")
                write(self._form(whole))


def write(line: bytes) -> None:
    """Write a whole line to standard output, in one piece."""
    with _writing, suppress(OSError, ValueError):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
