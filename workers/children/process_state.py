"""The state of a process that a tool may change, restored before the next tool."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from typing import Final

_LIMITS: Final = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_SIGNALS: Final = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("HUP", "INT", "QUIT", "PIPE", "ALRM", "VTALRM", "PROF", "TERM", "CHLD", "USR1", "USR2")
)
"""Signals that programs handle. To look at all sixty would cost a step a hundredth of its time."""


class ProcessState:
    """The working directory, the environment, the umask, limits, and what happens at signals; made in the main
    thread."""

    def __init__(self) -> None:
        self._directory = os.getcwd()
        self._environment = dict(os.environ)
        self._encoded = dict(_encoded())
        self._umask = os.umask(0o022)
        os.umask(self._umask)
        self._limits = {kind: resource.getrlimit(kind) for kind in _LIMITS}
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._recursion = sys.getrecursionlimit()

    def restore(self) -> None:
        """As they were."""
        for stop in (sys.settrace, sys.setprofile):
            stop(None)
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        os.umask(self._umask)
        if _encoded() != self._encoded:
            os.environ.clear()
            os.environ.update(self._environment)
        with contextlib.suppress(OSError):
            os.chdir(self._directory)
        for kind, limit in self._limits.items():
            if resource.getrlimit(kind) != limit:
                with contextlib.suppress(OSError, ValueError):
                    resource.setrlimit(kind, limit)
        sys.setrecursionlimit(self._recursion)


def _encoded() -> dict[bytes, bytes]:
    """Return the dictionary behind `os.environ`: it is compared in a tenth of the time."""
    encoded: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return encoded
