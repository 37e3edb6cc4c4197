"""Which processes have ended for certain, by the word of this machine's kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from palaver.processes import existence
from palaver.processes.existence import have_ended, named_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says so")


@pytest.fixture
def living() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_lives_has_not_ended(living: subprocess.Popen[bytes]) -> None:
    assert not have_ended(named_processes(living.pid))


def test_a_process_that_is_stopped_has_not_ended(living: subprocess.Popen[bytes]) -> None:
    living.send_signal(signal.SIGSTOP)
    assert not have_ended(named_processes(living.pid))


def test_a_process_that_was_killed_has_ended(living: subprocess.Popen[bytes]) -> None:
    living.kill()
    living.wait()
    assert have_ended(named_processes(living.pid))


def test_a_process_whose_parent_has_not_heard_of_its_end_has_ended(living: subprocess.Popen[bytes]) -> None:
    living.kill()
    os.waitid(os.P_PID, living.pid, os.WEXITED | os.WNOWAIT)
    assert have_ended(named_processes(living.pid))


def test_all_of_them_have_to_have_ended(living: subprocess.Popen[bytes]) -> None:
    names = named_processes(living.pid, os.getpid())
    living.kill()
    living.wait()
    assert not have_ended(names)


def test_a_process_of_somebody_else_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, signum: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert not have_ended(named_processes(1))


def test_a_machine_that_does_not_say_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(existence, "_kernel", lambda: "")
    assert named_processes(1) == ""
    assert not have_ended("")
    assert not have_ended("999999999 ")
