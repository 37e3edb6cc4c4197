"""An MCP server over HTTP as a process: ``python -m tests.process.mcp_web PORT JOURNAL``. Each call is a line of the
journal."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from tests.unit.mcp_server import McpServer, Message, answer, event, says, stream


def server(journal: Path) -> McpServer:
    """A server with a tool of each kind."""

    def note(line: str) -> None:
        with journal.open("a") as file:
            file.write(f"{line}\n")

    async def echo(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        note("echo")
        return answer(message, says(str(message["params"]["arguments"].get("text"))))

    async def fail(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        note("fail")
        return answer(message, says("no such city", isError=True))

    async def busy(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        note("busy")
        if server.calls.count("busy") % 2:
            return web.Response(status=503, headers={"Retry-After": "1"})
        note("taken")
        return answer(message, says("now"))

    async def wait(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        note("wait")
        response = await stream(request)
        token = message["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1, "total": 4, "message": "begun"}
        await response.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            note("wait was left")
            raise
        return response

    return McpServer({"echo": echo, "fail": fail, "busy": busy, "wait": wait, "brief": wait})


if __name__ == "__main__":
    app = web.Application()
    app.router.add_route("*", "/mcp", server(Path(sys.argv[2])).handle)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), handler_cancellation=True, print=None)
