"""A service whose deeds are requests, and tools of an MCP server: ``python -m tests.process.deed_web PORT``."""

from __future__ import annotations

import base64
import sys

from aiohttp import web

from features.mcp_client.tests.unit.mcp_server import McpServer, Message, answer, event, says, stream, tool
from tests.process.deeds import MANY, PNG, deed_async

NAMES = ("deed", "deed_brief", "deed_again")
IMAGE = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}


def _caller(request: web.Request) -> str:
    return request.headers.get("Authorization", "")


async def request_for_a_deed(request: web.Request) -> web.StreamResponse:
    """A deed as a request."""
    wanted = await request.json()
    try:
        done = await deed_async(wanted["do"], wanted["key"], _caller(request), PNG)
    except ValueError as error:
        return web.Response(status=422, text=str(error))
    return web.Response(body=done, content_type="image/png") if done is PNG else web.Response(text=done)


async def call_of_a_deed(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    """A deed as a call."""
    wanted = message["params"]["arguments"]
    if wanted["do"] == "wait":
        return await _streamed(request, message)
    try:
        done = await deed_async(wanted["do"], wanted["key"], _caller(request), IMAGE)
    except ValueError as error:
        return answer(message, says(str(error), isError=True))
    return answer(message, {"resultType": "complete", "content": [IMAGE]} if done is IMAGE else says(done))


async def _streamed(request: web.Request, message: Message) -> web.StreamResponse:
    params = message["params"]
    told = {"progressToken": params["_meta"]["progressToken"], "progress": 1, "total": 2, "message": "half of it"}
    response = await stream(request)
    await response.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}))
    done = await deed_async("wait", params["arguments"]["key"])
    await response.write(event({"jsonrpc": "2.0", "id": message["id"], "result": says(done)}))
    return response


def server(*names: str) -> McpServer:
    """An MCP server with these tools."""
    return McpServer(dict.fromkeys(names, call_of_a_deed), listed=[tool(name) for name in names])


if __name__ == "__main__":
    app = web.Application()
    app.router.add_route("*", "/mcp", server(*NAMES).handle)
    app.router.add_route("*", "/many", server(*(f"deed_{number}" for number in range(MANY))).handle)
    app.router.add_post("/deeds", request_for_a_deed)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), handler_cancellation=True, print=None)
