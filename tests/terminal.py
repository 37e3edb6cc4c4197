"""The command line on a pseudo terminal, and somebody who types."""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from tests.process.typed import begun, exit_code
from tests.scripted_api import ScriptedAPI

PATIENCE = 300.0
"""Seconds for the command to say something; starting Python takes most of one."""


class Terminal:
    """Runs ``palaver`` with standard input and standard error on a terminal.

    Standard output is a pipe if `piped`, and the command is then started as users start it. Else it is forked from a
    warm parent (tests/process/typed.py).
    """

    def __init__(self, api: ScriptedAPI | str, *arguments: str, piped: bool = False) -> None:
        self._master, slave = pty.openpty()
        self.shown = ""
        """What was written to the terminal so far, the echo of what was typed included."""
        self._seen = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._forked: socket.socket | None = None
        environment = {**os.environ, "PALAVER_URL": api if isinstance(api, str) else api.url, "COLUMNS": "200"}
        if piped:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "palaver.cli", *arguments],
                stdin=slave,
                stdout=subprocess.PIPE,
                stderr=slave,
                env=environment,
                start_new_session=True,
                preexec_fn=_take_the_terminal,
            )
        else:
            self._forked = begun(arguments, (slave, slave, slave), environment)
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        # Whoever is left at a terminal that goes away is ended by that.
        os.close(self._master)
        if self._forked is not None:
            self._forked.close()

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
        if self._forked is not None:
            return exit_code(self._forked)
        assert self._process is not None
        return self._process.wait(timeout=PATIENCE)

    def piped(self) -> str:
        """What was written to standard output, once the command has ended."""
        assert self._process is not None
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
