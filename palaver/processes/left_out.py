"""Imports of libraries without what they would only offer where some other package is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_out(*modules: str) -> Iterator[None]:
    """Import within this as where these modules are not installed. Those that are imported already stay."""
    absent = [module for module in modules if module not in sys.modules]
    # An entry that is None: such an import raises ModuleNotFoundError.
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for module in absent:
            del sys.modules[module]
