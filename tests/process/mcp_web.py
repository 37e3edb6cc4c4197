"""An MCP server over HTTP as a process: ``python -m tests.process.mcp_web PORT JOURNAL``. Each call is a line of the
journal, and each request with a credential. One of its tools is named for its port."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from features.mcp_client.tests.unit.mcp_server import McpServer, Message, answer, event, says, stream, tool

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CHOICES = {
    "type": "object",
    "properties": {
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "The small one"}, {"const": "l", "title": "The large one"}],
        },
        "colours": {
            "type": "array",
            "items": {"anyOf": [{"const": each[0].lower(), "title": each} for each in ("Red", "Green", "Blue")]},
            "minItems": 1,
            "maxItems": 2,
            "default": ["r", "g"],
        },
        "toppings": {"type": "array", "items": {"type": "string", "enum": ["salt", "pepper"]}, "default": ["salt"]},
        "when": {"type": "string", "enum": ["noon", "night"], "enumNames": ["At noon", "At night"], "default": "noon"},
        "note": {"type": "string", "title": "Note"},
    },
    "required": ["size", "colours"],
}
"""A form with each kind of choice."""


def server(journal: Path) -> McpServer:
    """A server with a tool of each kind."""

    def note(line: str) -> None:
        with journal.open("a") as file:
            file.write(f"{line}\n")

    async def echo(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        note("echo")
        return answer(message, says(str(message["params"]["arguments"].get("text"))))

    async def who(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        note(f"who {request.headers.get('Authorization')}")
        return answer(message, says(f"you are {request.headers.get('Authorization')}"))

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

    async def asks(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        if responses := message["params"].get("inputResponses"):
            note("answered")
            return answer(message, says(json.dumps([responses, message["params"]["requestState"]])))
        note("asks")
        form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        who = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": form}}
        required = {"resultType": "input_required", "inputRequests": {"who": who}, "requestState": "s-1"}
        return answer(message, required)

    async def chooses(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        if responses := message["params"].get("inputResponses"):
            note(f"chose {json.dumps(responses)}")
            return answer(message, says("chosen"))
        which = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": CHOICES}}
        return answer(message, {"resultType": "input_required", "inputRequests": {"which": which}, "requestState": ""})

    async def long(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        note("long")
        return answer(message, {"resultType": "task", "taskId": "t-1", "status": "working", "pollIntervalMs": 1})

    tools = {"asks": asks, "chooses": chooses, "long": long, "who": who, "echo": echo, "fail": fail, "busy": busy}
    return McpServer({**tools, "wait": wait, "brief": wait})


def looked(journal: Path) -> bool:
    """Note that somebody asked for the task; tell whether it is done."""
    lines = journal.read_text().splitlines()
    with journal.open("a") as file:
        file.write("tasks/get\n")
    return "task is done" in lines


def with_tasks(journal: Path, port: int) -> Handler:
    """The handler of such a server, which also tells of a task: it is done once the journal says so."""
    served = server(journal)
    served.listed = [tool(name) for name in (*served.behaviours, f"at_{port}")]
    handle = served.handle

    async def answering(request: web.Request) -> web.StreamResponse:
        if credential := request.headers.get("Authorization"):
            with journal.open("a") as file:
                file.write(f"from {credential}\n")
        message = await request.json() if request.method == "POST" else {}
        if message.get("method") != "tasks/get":
            return await handle(request)
        if looked(journal):
            return answer(message, {"taskId": "t-1", "status": "completed", "result": says("at last")})
        return answer(message, {"taskId": "t-1", "status": "working", "pollIntervalMs": 1})

    return answering


if __name__ == "__main__":
    app = web.Application()
    app.router.add_route("*", "/mcp", with_tasks(Path(sys.argv[2]), int(sys.argv[1])))
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), handler_cancellation=True, print=None)
