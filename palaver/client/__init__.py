"""The SDK: `Palaver` for threads and scripts, `AsyncPalaver` for asyncio. Same methods, same errors.

`aio` is written by hand, and everything that does no I/O is beside it; `sync` is made from `aio`.
"""

from __future__ import annotations

from palaver.client.aio import AsyncPalaver
from palaver.client.answers import BulkResult
from palaver.client.errors import (
    APIError,
    ClientError,
    Conflict,
    ConnectionFailed,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unprocessable,
    WaitTimeout,
)
from palaver.client.exported import Exported
from palaver.client.sync import Palaver
from palaver.errors import RunFailed

__all__ = [
    "APIError",
    "AsyncPalaver",
    "BulkResult",
    "ClientError",
    "Conflict",
    "ConnectionFailed",
    "Exported",
    "NotFound",
    "Palaver",
    "RunFailed",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "Unprocessable",
    "WaitTimeout",
]
