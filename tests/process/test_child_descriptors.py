"""Children of a tools worker: how they leave behind what their parent had open, and how it sees their end."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from kombu.asynchronous import Hub

from workers.children.descriptors import leave_behind, open_files
from workers.children.prefork import ToolPool

pytestmark = [pytest.mark.process, pytest.mark.long]


def _in_a_child(holds: Callable[[], bool]) -> bool:
    """Whether that holds in a fork of this process."""
    if (pid := os.fork()) == 0:
        status = 2
        try:
            status = 0 if holds() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _is_pipe(number: int) -> bool:
    return stat.S_ISFIFO(os.fstat(number).st_mode)


def test_what_the_parent_had_open_leads_nowhere_and_a_pipe_that_came_since_stays() -> None:
    old = os.pipe()
    inherited = open_files()
    new = os.pipe()

    def left() -> bool:
        leave_behind(inherited, keep=frozenset())
        return not any(map(_is_pipe, old)) and all(map(_is_pipe, new))

    assert _in_a_child(left)
    for number in (*old, *new):
        os.close(number)


def test_a_pipe_that_has_the_number_of_what_was_closed_meanwhile_stays() -> None:
    """The garbage of a lost connection is collected just before a fork. By such a pipe a parent saw that a child ended,
    which went on; and it ended itself at its next connection."""
    old = os.pipe()
    inherited = open_files()
    for end, number in zip(os.pipe(), old, strict=True):
        os.dup2(end, number)
        os.close(end)

    def left() -> bool:
        leave_behind(inherited, keep=frozenset())
        return all(map(_is_pipe, old))

    assert _in_a_child(left)
    for number in old:
        os.close(number)


def test_a_child_whose_end_was_seen_is_still_one_at_the_next_connection() -> None:
    """It cannot be waited for yet when the worker has lost its connection and gets another one."""
    hub, (end, written) = Hub(), os.pipe()
    pool = ToolPool.Pool.__new__(ToolPool.Pool)
    child = SimpleNamespace(_popen=SimpleNamespace(sentinel=end))
    pool._track_child_process(child, hub)
    pool._untrack_child_process(child, hub)
    assert not hub.readers
    pool._track_child_process(child, hub)
    assert list(hub.readers) == [child._sentinel_poll]
    pool._untrack_child_process(child, hub)
    hub.close()
    os.close(end)
    os.close(written)
