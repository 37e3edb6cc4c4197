"""The open files of a child of a tools worker: those that it has inherited and does not need lead nowhere.

A fork gives a child all that its parent has open: connections to Redis, logged in as the worker, sockets that listen,
what its event loop waits on. A tool that writes to the wrong descriptor would write there, and a flag that it sets
would hold for its parent, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_STANDARD: Final = frozenset({0, 1, 2})


class Descriptor(NamedTuple):
    """A descriptor, and the file that it is of: once that is closed, its number is the next file's."""

    number: int
    device: int
    inode: int
    is_pipe: bool


def open_files() -> frozenset[Descriptor]:
    """The descriptors of this process."""
    return frozenset(_descriptors())


def _descriptors() -> Iterator[Descriptor]:
    for number in map(int, os.listdir("/dev/fd")):
        # One of them was that of the directory.
        with contextlib.suppress(OSError):
            file = os.fstat(number)
            yield Descriptor(number, file.st_dev, file.st_ino, stat.S_ISFIFO(file.st_mode))


def leave_behind(inherited: frozenset[Descriptor], *, keep: frozenset[int]) -> None:
    """In a child, before it opens anything: all that its parent had open and it does not need is /dev/null from here
    on.

    Not closed: an object that still has such a number may close it any time, and by then it would be that of another
    file. ``inherited`` is what the parent had open before it began to fork. Of what came since, pipes are left: the
    parent sees by one of them that this process ends. The logs' files stay.
    """
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    keep |= {nowhere, *_STANDARD, *_logs()}
    for each in open_files():
        if each.number not in keep and (each in inherited or not each.is_pipe):
            os.dup2(nowhere, each.number, inheritable=False)
    os.close(nowhere)


def pipes_of(process: Any) -> frozenset[int]:
    """In a child of billiard's: the descriptors by which it hears of tasks, and answers."""
    ends = [process.inq._reader, process.outq._writer]
    if process.synq:
        ends += [process.synq._reader, process.synq._writer]
    return frozenset(end.fileno() for end in ends)


def private_copy(number: int) -> int:
    """Another descriptor for the same file. If it is a pipe or a terminal, flags that are set on it are no flags of
    this one."""
    mode = os.fstat(number).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            # Of a pipe that is not read any more it would wait for a reader.
            copy = os.open(f"/dev/fd/{number}", os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
            os.set_blocking(copy, True)
            return copy
    return os.dup(number)


def _logs() -> frozenset[int]:
    return frozenset(_files_of_logs())


def _files_of_logs() -> Iterator[int]:
    for logger in [logging.getLogger(), *logging.root.manager.loggerDict.values()]:
        for handler in getattr(logger, "handlers", ()):
            for name in ("stream", "socket"):
                with contextlib.suppress(AttributeError, OSError, ValueError):
                    yield getattr(handler, name).fileno()
