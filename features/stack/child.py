"""One process of the stack: its own process group, its log, gone when the stack is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Protocol

from palaver.config.exits import EX_CONFIG
from palaver.processes.process_tree import below, stopped

from .child_output import ChildOutput, LogFile
from .errors import StackError, WrongSetting

# Sent to one process these would leave its own children working, or orphaned until they notice.
_EXEC_DYING_WITH_PARENT: Final = """\
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


_GROUP_SIGNALS = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT})
_STOPS_WITHIN = 5.0
"""Seconds. The main thread stops the others, once it gets to run: on a busy machine they work on for a while."""


class Spawned(Protocol):
    """The process of a child, as far as the child uses it; `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class ChildCommand:
    """A command that is started, watched, signalled and stopped; `ready` says whether it does its work yet.

    Messages call it `name`. It writes into the log, which stays over restarts of the same child, or else to `output`.
    `progress` is a file that it touches while it makes progress, if it has one.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log_path: Path,
        ready: Callable[[ChildCommand], bool],
        output: ChildOutput | None = None,
        progress: Path | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.progress = progress
        self._command = command
        self._environment = environment
        self._ready = ready
        self._process: Spawned | None = None
        self._group_may_live = False
        self._output = output or LogFile(log_path)

    @property
    def pid(self) -> int:
        """The process id of the last start; raises StackError before the first."""
        if self._process is None:
            raise StackError(f"{self.name} was never started")
        return self._process.pid

    @property
    def environment(self) -> Mapping[str, str]:
        """All of its environment."""
        return self._environment

    @property
    def running(self) -> bool:
        """True if the process exists, stopped by a signal or not."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._end_group()
        return False

    @property
    def ready(self) -> bool:
        """True if it does its work."""
        return self._ready(self)

    @property
    def progressed_at(self) -> float | None:
        """The time at which it last made progress, in seconds since the epoch; None if that is not known."""
        try:
            return self.progress.stat().st_mtime if self.progress else None
        except FileNotFoundError:
            return None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last start, negative for a signal; None while it runs."""
        return self._process.poll() if self._process is not None else None

    @property
    def output(self) -> str:
        """The output of the last start so far."""
        return self._output.text

    def start(self) -> None:
        """Start the command where this process is; does not wait for anything."""
        with self._output.opened() as log:
            self._process = self._spawn(log)
            self._group_may_live = True

    def _spawn(self, log: IO[bytes]) -> Spawned:
        return subprocess.Popen(
            dying_with_parent(self._command),
            env=dict(self._environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Its output is conversations: only for the user who started it.
            umask=0o077,
        )

    def wait_until_ready(self, give_up_at: float) -> None:
        """Return once it is ready. Raises StackError if it exits or `give_up_at` (monotonic) comes first, WrongSetting
        if it exits for a setting."""
        while not self._ready(self):
            if not self.running:
                self._output.finish()
                kind = WrongSetting if self.exit_code == EX_CONFIG else StackError
                raise kind(f"{self.name} exited with {self.exit_code}{self._output.end}")
            if time.monotonic() >= give_up_at:
                raise StackError(f"{self.name} was not ready in time{self._output.end}")
            time.sleep(0.05)

    def kill(self, signum: int) -> None:
        """Send a signal: any but KILL, STOP and CONT to the process alone, those to its group and all below.

        After KILL it has ended, and after STOP no thread of it runs.
        """
        if self._process is None or not self.running:
            return
        if signum in _GROUP_SIGNALS:
            # The children of a tools worker have groups of their own.
            children = below(self.pid)
            os.killpg(self.pid, signum)
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signum)
        else:
            os.kill(self.pid, signum)
        if signum == signal.SIGKILL:
            self._process.wait()
            self._group_may_live = False
        elif signum == signal.SIGSTOP:
            give_up_at = time.monotonic() + _STOPS_WITHIN
            while self.running and not stopped(self.pid) and time.monotonic() < give_up_at:
                time.sleep(0.001)

    def terminate(self) -> None:
        """Ask it to end, also when it is paused."""
        self.kill(signal.SIGCONT)
        self.kill(signal.SIGTERM)

    def reap(self, give_up_at: float) -> None:
        """Wait for the end until `give_up_at` (monotonic), then end the group, or the rest of it."""
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, give_up_at - time.monotonic()))
        self.kill(signal.SIGKILL)
        self._output.finish()

    def _end_group(self) -> None:
        # Once only, right after the end: later the number may belong to another program's group.
        if self._group_may_live:
            self._group_may_live = False
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """`command`, wrapped so that the kernel kills it when the calling thread's process goes away.

    The wrapper becomes the command (same process id). Linux ties this to the *thread* that starts the
    process: start from the main thread or from one that lives as long. Elsewhere the command comes back
    unchanged.
    """
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-I", "-S", "-c", _EXEC_DYING_WITH_PARENT, str(os.getpid()), *command]
