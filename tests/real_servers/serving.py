"""Servers that nobody here wrote, each a process out of an environment of its own (``make check-servers``)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from features.stack.child import ChildCommand
from features.stack.readiness import answers_ok

INSTALLED: Final = Path(sys.prefix) / "servers" / "bin"
"""Where ``make check-servers`` installs their commands."""
_START: Final = 180.0
"""Seconds until a server is ready: LiteLLM imports for 20 of them on two cores that have nothing else to do."""


def needed(name: str, command: str) -> pytest.MarkDecorator:
    """Skips tests of a server that is not installed, so that nobody overlooks it."""
    there = (INSTALLED / command).exists()
    return pytest.mark.skipif(not there, reason=f"{name} IS NOT CHECKED: make check-servers installs it")


def run_there(command: str, *arguments: str) -> None:
    """Run one of their commands to its end. Raises CalledProcessError if it fails."""
    subprocess.run([INSTALLED / command, *arguments], check=True, timeout=_START)


@contextmanager
def serving(
    name: str,
    command: Sequence[str],
    *,
    healthy: str,
    log_path: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[ChildCommand]:
    """The server, which answers at the address ``healthy``; it is ended on the way out."""
    child = ChildCommand(
        name,
        [str(INSTALLED / command[0]), *command[1:]],
        environment={**os.environ, **environment},
        log_path=log_path,
        ready=lambda _: answers_ok(healthy),
    )
    try:
        child.start()
        child.wait_until_ready(time.monotonic() + _START)
        yield child
    finally:
        child.terminate()
        child.reap(time.monotonic() + 10)


def started_again(child: ChildCommand) -> str:
    """How a server ended that has crashed; it is started again now, as by a supervisor. Empty for one that runs."""
    if child.running:
        return ""
    ended, last = child.exit_code, child.output.splitlines()[-5:]
    child.start()
    child.wait_until_ready(time.monotonic() + _START)
    return "\n".join([f"{child.name} ended by itself with {ended}, and was started again", *last])
