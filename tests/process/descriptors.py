"""A process that may open nothing more."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STANDARD = 3
"""Input, output and errors: no process of ours closes these."""


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """The process gets no new file descriptor; those that it has go on working.

    The kernel compares the number of a new one, the lowest that is free, with the limit: below those of input, output
    and errors none ever is, whatever the process closes. (`poll` with more than three would fail; nothing here does.)
    """
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (_STANDARD, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
