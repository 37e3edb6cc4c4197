"""A server of the Model Context Protocol on a real socket, whose tools behave as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Message = dict[str, Any]
Behaviour = Callable[["McpServer", web.Request, Message], Awaitable[web.StreamResponse]]
"""Answers a call."""


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A tool as a list has it."""
    return {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}, **more}


def answer(message: Message, result: Mapping[str, Any], **more: Any) -> web.Response:
    """The answer to a request."""
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, **more)


def error(message: Message, code: int, text: str = "no", status: int = 200, **more: Any) -> web.Response:
    """An error in its place."""
    body = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text, **more}}
    return web.json_response(body, status=status)


def says(text: str, **more: Any) -> dict[str, Any]:
    """A result with a text."""
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], **more}


def event(message: Mapping[str, Any]) -> bytes:
    """A message as an event of a stream."""
    return f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n".encode()


async def stream(request: web.Request) -> web.StreamResponse:
    """The beginning of a stream."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


@dataclass
class McpServer:
    """What it does, and what came to it."""

    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    """By the names of tools. Another tool answers with its arguments."""
    listed: list[Any] | None = None
    """Its tools; those of the behaviours unless given."""
    pages: Callable[[str | None], dict[str, Any]] | None = None
    """Its list, by the cursor."""
    resumed: Behaviour | None = None
    """Answers a GET."""
    modern: bool = True
    discovery: bool = True
    status: int = 0
    """The status with which it refuses everything."""
    headers: dict[str, str] = field(default_factory=dict)
    session: str = "session-1"
    """Of the older era; empty for a server that has none."""
    requests: list[Message] = field(default_factory=list)
    heads: list[Mapping[str, str]] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call has come."""
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a caller has gone before its answer."""
    url: str = ""
    most_noted: int = 0
    """The most messages at a time that want no answer."""
    _noting: int = 0

    @property
    def calls(self) -> list[str]:
        """The names of the tools that were called, each time."""
        return [each["params"]["name"] for each in self.requests if each["method"] == "tools/call"]

    @property
    def methods(self) -> list[str]:
        """The methods of all requests."""
        return [each.get("method", "answer") for each in self.requests]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if self.status:
            return web.Response(status=self.status, headers=self.headers)
        if request.method != "POST":
            self.requests.append({"method": request.method})
            self.heads.append({**request.headers})
            return web.Response(status=405) if self.resumed is None else await self.resumed(self, request, {})
        message = await request.json()
        self.requests.append(message)
        self.heads.append({**request.headers})
        if "id" not in message or "method" not in message:
            return await self._noted()
        return await (self._modern if self.modern else self._older)(request, message)

    async def _noted(self) -> web.Response:
        self._noting += 1
        self.most_noted = max(self.most_noted, self._noting)
        # Others come meanwhile, if there are any.
        for _ in range(20):
            await asyncio.sleep(0)
        self._noting -= 1
        return web.Response(status=202)

    async def _modern(self, request: web.Request, message: Message) -> web.StreamResponse:
        if message["method"] == "server/discover":
            if not self.discovery:
                return error(message, -32601, status=404)
            info = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
            return answer(message, info)
        return await self._either(request, message)

    async def _older(self, request: web.Request, message: Message) -> web.StreamResponse:
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
            return answer(message, info, headers={"Mcp-Session-Id": self.session} if self.session else {})
        if not self.session:
            return await self._either(request, message)
        if "Mcp-Session-Id" not in request.headers:
            return web.Response(status=400, text="Bad Request: no session")
        if request.headers["Mcp-Session-Id"] != self.session:
            return error(message, -32600, "Session not found", status=404) if self.headers else web.Response(status=404)
        return await self._either(request, message)

    async def _either(self, request: web.Request, message: Message) -> web.StreamResponse:
        if message["method"] == "tools/list":
            if self.pages is not None:
                return answer(message, self.pages(message["params"].get("cursor")))
            listed = [tool(name) for name in self.behaviours] if self.listed is None else self.listed
            return answer(message, {"resultType": "complete", "tools": listed})
        if message["method"] != "tools/call":
            return error(message, -32601)
        self.called.set()
        behaviour = self.behaviours.get(message["params"]["name"], _echo)
        try:
            return await behaviour(self, request, message)
        except asyncio.CancelledError:
            self.dropped.set()
            raise


async def _echo(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    return answer(message, says(json.dumps(message["params"]["arguments"])))


@asynccontextmanager
async def serving(server: McpServer) -> AsyncIterator[McpServer]:
    """Serve on a free port of this machine."""
    app = web.Application(client_max_size=32 << 20)
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        yield server
    finally:
        await runner.cleanup()
