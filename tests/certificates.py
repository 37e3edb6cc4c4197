"""The certificates of authorities, which httpx reads for each client anew, though it may never speak TLS."""

from __future__ import annotations

import ssl
from functools import cache, wraps
from pathlib import Path
from typing import Any


def read_once() -> None:
    """From here on all clients of this process that trust the authorities of a file share one context."""
    plain = ssl.create_default_context

    @cache
    def trusting(cafile: str, written: int) -> ssl.SSLContext:
        return plain(cafile=cafile)

    @wraps(plain)
    def create(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        match args, kwargs:
            case (), {"cafile": str(path), **rest} if not rest:
                return trusting(path, Path(path).stat().st_mtime_ns)
        return plain(*args, **kwargs)

    ssl.create_default_context = create
