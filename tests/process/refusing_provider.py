"""A provider that everybody meets at once: it refuses a crowd with one Retry-After, and notes who does not wait."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from aiohttp import web

from tests.process.relay import Relay


@dataclass
class RefusingProvider(Relay):
    """Keeps the first `crowd` requests until all are there and refuses them together; for `retry_after` seconds whoever
    comes is refused, too. Afterwards it passes requests on."""

    crowd: int
    retry_after: int
    refused_at: float | None = None
    """When the crowd was refused; `time.monotonic`."""
    asked_at: list[float] = field(default_factory=list)
    """When each request came."""
    passed: int = 0
    _complete: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def open_at(self) -> float:
        """When the provider said that it could be asked again."""
        return (self.refused_at or time.monotonic()) + self.retry_after

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        now = time.monotonic()
        self.asked_at.append(now)
        if len(self.asked_at) == self.crowd:
            self.refused_at = now
            self._complete.set()
        if len(self.asked_at) <= self.crowd:
            await self._complete.wait()
        if time.monotonic() < self.open_at:
            return web.json_response(
                {"error": {"message": "slow down", "code": "rate_limit_exceeded"}},
                status=429,
                headers={"Retry-After": str(self.retry_after)},
            )
        self.passed += 1
        return await self._pass_on(request, await request.read())
