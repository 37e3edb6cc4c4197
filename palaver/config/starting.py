"""How a process ends that cannot start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from palaver.config.exits import EX_CONFIG, refuse
from palaver.errors import ConfigurationError


@contextmanager
def refusing() -> Iterator[None]:
    """Ends the process with one sentence on standard error, and exit code 78, where the configuration is wrong."""
    try:
        yield
    except ConfigurationError as error:
        refuse(str(error), EX_CONFIG)
