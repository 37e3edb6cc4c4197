"""A provider that goes away and comes back: it stands in front of a model server, and notes who asks meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import orjson
from aiohttp import web

from tests.process.relay import Relay


@dataclass
class FailingProvider(Relay):
    """Passes requests on to `upstream`, but for those of the `models` that are out, or of all: these fail."""

    status: int | None = 503
    """Of the answers that fail; None closes the connection without any."""
    out: bool = False
    """All models are."""
    goes_out_after: int | None = None
    """So many more requests are passed on, then it is out: however slow the test is."""
    models: set[str] = field(default_factory=set)
    failed: list[tuple[float, str]] = field(default_factory=list)
    """When each request came that failed (`time.monotonic`), and of which run."""
    passed: list[float] = field(default_factory=list)
    """When each other one came."""

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body, came = await request.read(), time.monotonic()
        if self.out or orjson.loads(body)["model"] in self.models:
            self.failed.append((came, request.headers.get("x-palaver-run", "")))
            if self.status is None:
                assert request.transport is not None
                request.transport.abort()
            return web.json_response(
                {"error": {"message": "out of service", "code": "down"}},
                status=500 if self.status is None else self.status,
            )
        self.passed.append(came)
        if self.goes_out_after is not None:
            self.goes_out_after -= 1
            if self.goes_out_after <= 0:
                self.out, self.goes_out_after = True, None
        return await self._pass_on(request, body)
