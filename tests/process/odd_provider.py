"""A provider that passes requests on to the model server, but for those that it answers itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.process.relay import Relay

Answer = tuple[int, dict[str, Any]]


@dataclass
class OddProvider(Relay):
    """`answers` gives a status and a document for the path and the body of a request; None passes it on."""

    answers: Callable[[str, bytes], Answer | None]
    seen: list[bytes] = field(default_factory=list)
    """The body of each request."""

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(body)
        own = self.answers(request.path, body)
        if own is None:
            return await self._pass_on(request, body)
        status, document = own
        return web.Response(status=status, body=orjson.dumps(document), content_type="application/json")
