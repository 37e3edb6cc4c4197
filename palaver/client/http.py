"""The client's use of httpx: requests are translated for it, and its errors are translated back."""

from __future__ import annotations

from typing import Any, Final

import httpx

from palaver.client.environment import through
from palaver.client.errors import ConnectionFailed
from palaver.client.requests.request import Request

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""Errors before the request left."""


def request_options(request: Request, silence: float, connect: float) -> dict[str, Any]:
    """Arguments of httpx's ``stream`` for one request; ``silence`` and ``connect`` are seconds."""
    return {
        "method": request.method,
        "url": request.path,
        "params": request.query,
        "headers": request.headers,
        "timeout": httpx.Timeout(silence, connect=connect),
        **({} if request.body is None else {"json": request.body}),
    }


def lost(url: str, request: Request, error: httpx.RequestError) -> ConnectionFailed:
    """The error for a request without an answer. It says why in words: many of httpx's have no message."""
    words: dict[type[httpx.RequestError], str] = {
        httpx.ConnectTimeout: "no connection in time",
        httpx.ReadTimeout: "no answer in time",
        httpx.WriteTimeout: "the request could not be sent in time",
        httpx.PoolTimeout: "no free connection in time",
    }
    reason = words.get(type(error)) or str(error).strip() or type(error).__name__
    failed = ConnectionFailed(url, reason + through(httpx.URL(url)), perhaps_done=not isinstance(error, _NEVER_SENT))
    failed.run_id = request.run_id
    return failed
