"""What all methods share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from palaver.client import patience
from palaver.client.errors import ClientError
from palaver.client.flow import Flow, Request, Response


@dataclass(frozen=True, slots=True)
class Base:
    """Where to ask, and how long to wait for an answer."""

    url: str
    timeout: float
    now: Callable[[], float] = time.monotonic
    on_wait: Callable[[ClientError, float], None] | None = None
    """Told before a request waits to be sent again: why, and for how many seconds."""

    def _call(self, request: Request, wait: float = 0.0) -> Flow[Response]:
        return patience.call(self.url, request, self.timeout + wait, self.timeout, self.on_wait)
