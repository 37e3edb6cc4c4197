"""The command line on a pseudo terminal, and somebody who types."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

from tests.scripted_api import ScriptedAPI

PATIENCE = 20.0
"""Seconds for the command to say something; starting Python takes most of one."""


class Terminal:
    """Runs ``palaver`` with standard input and standard error on a terminal; standard output is a pipe if `piped`."""

    def __init__(self, api: ScriptedAPI | str, *arguments: str, piped: bool = False) -> None:
        self._master, slave = pty.openpty()
        self.shown = ""
        """What was written to the terminal so far, the echo of what was typed included."""
        self._seen = 0
        options: dict[str, Any] = {"stdout": subprocess.PIPE if piped else slave, "start_new_session": True}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "palaver.cli", *arguments],
            stdin=slave,
            stderr=slave,
            env={**os.environ, "PALAVER_URL": api if isinstance(api, str) else api.url, "COLUMNS": "200"},
            preexec_fn=_take_the_terminal,
            **options,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        os.close(self._master)

    def wait_for(self, text: str) -> None:
        """Read on until `text` is shown, behind where the last wait ended."""
        until = time.monotonic() + PATIENCE
        while text not in self.shown[self._seen :]:
            assert self._read(until - time.monotonic()), f"{text!r} is not shown: {self.shown}"
        self._seen = self.shown.index(text, self._seen) + len(text)

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._master, text.encode())

    def end(self) -> int:
        """The exit code."""
        until = time.monotonic() + PATIENCE
        while self._read(until - time.monotonic()):
            pass
        return self._process.wait(timeout=PATIENCE)

    def piped(self) -> str:
        """What was written to standard output, once the command has ended."""
        assert self._process.stdout is not None
        return str(self._process.stdout.read(), "utf-8")

    def _read(self, seconds: float) -> bool:
        """Whether there was something to read before the end."""
        ready, _, _ = select.select([self._master], [], [], max(seconds, 0))
        try:
            data = os.read(self._master, 4096) if ready else b""
        except OSError:  # Linux says so when nobody holds the other side any more.
            data = b""
        self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


def _take_the_terminal() -> None:
    """Make standard input the terminal that Ctrl-C comes from."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
