"""The public authorities' certificates, which httpx reads for each client anew, though it may never speak TLS."""

from __future__ import annotations

import ssl
from functools import cache, wraps
from typing import Any

import certifi


def read_once() -> None:
    """From here on all clients of this process that trust the public authorities have them from one context."""
    plain = ssl.create_default_context

    @cache
    def public(path: str) -> ssl.SSLContext:
        return plain(cafile=path)

    @wraps(plain)
    def create(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        path = certifi.where()
        return public(path) if not args and kwargs == {"cafile": path} else plain(*args, **kwargs)

    ssl.create_default_context = create
