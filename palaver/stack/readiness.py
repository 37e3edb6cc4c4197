"""Whether a server takes requests yet."""

from __future__ import annotations

import socket

import httpx

from palaver.testing.ports import HOST


def answers_ok(url: str) -> bool:
    """Whether a GET of `url` answers 200 within two seconds."""
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def accepts(port: int) -> bool:
    """Whether something listens on `port` of the loopback address."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True
