"""What all methods share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from palaver.client import patience
from palaver.client.flow import Flow, Request, Response


@dataclass(frozen=True, slots=True)
class Base:
    """Where to ask, and how long to wait for an answer."""

    url: str
    timeout: float
    now: Callable[[], float] = time.monotonic

    def _call(self, request: Request, wait: float = 0.0) -> Flow[Response]:
        return patience.call(self.url, request, self.timeout + wait)
