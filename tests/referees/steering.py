"""A model that calls tools as LangChain's tests want it: the fake provider, told so in the words of the user."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import web

_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "magic_function": {"input": 3},
    "unicode_customer": {"customer_name": "你好こんにちは", "description": "a company"},
}
"""By the name of a tool."""
_JOKE: Final = {"type": "object", "properties": {"setup": {"type": "string"}, "punchline": {"type": "string"}}}
"""What they want where any JSON is asked for."""


@dataclass(frozen=True, slots=True)
class Steering:
    """The provider that stands before another one, of this address."""

    url: str

    async def handle(self, request: web.BaseRequest) -> web.Response:
        asked = await request.json()
        offered = {tool["function"]["name"] for tool in asked.get("tools", ())}
        last = next(each for each in reversed(asked["messages"]) if each["role"] == "user")
        for name in offered & _ARGUMENTS.keys():
            last["content"] = f"{last['content']} [[args {json.dumps(_ARGUMENTS[name])}]]"
        if asked.get("response_format") == {"type": "json_object"}:
            asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "joke", "schema": _JOKE}}
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}{request.path}", json=asked) as said:
            body = await said.read()
            return web.Response(status=said.status, body=body, content_type=said.content_type)


@asynccontextmanager
async def steering(url: str, port: int) -> AsyncIterator[None]:
    """Serve it on a port of this machine."""
    runner = web.ServerRunner(web.Server(Steering(url).handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()
