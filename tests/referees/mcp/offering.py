"""What the suite asks for by name, as far as an installation can offer it: agents on the server, and an MCP server that
asks in forms, which some of them call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from features.mcp_client.tests.unit.mcp_server import McpServer, Message, answer, says, serving
from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.referees.openai_agents import cancel_waiting

_TOOLS: Final = {"approvals": {"require": "never"}}
_ASKING: Final = {"model": "fake/tool-1", "tools": ["referee__confirm"], **_TOOLS}
AGENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "test_simple_text": {"model": "fake/echo"},
    "test_error_handling": {"model": "fake/echo"},
    "test_streaming_elicitation": _ASKING,
    "test_logging_tool": {"model": "fake/echo"},
    "slow_compute": {"model": "fake/tool-1", "tools": ["record_async"], **_TOOLS},
    "failing_job": {"model": "fake/401"},
    "protocol_error_job": {"model": "fake/400"},
    "confirm_delete": _ASKING,
    "multi_input": {**_ASKING, "model": "fake/parallel-2"},
}
"""By the suite's name of a tool."""
_WORDLESS: Final = "test_error_handling"
"""Is called without a message, which its tool refuses."""
_SYNCHRONOUS: Final = "greet"
"""Is to make no task, as none of the tools about runs that are there does: it is one of these."""
_FORM: Final = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean"}, "name": {"type": "string"}},
    "required": ["confirm"],
}


async def _confirm(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    if message["params"].get("inputResponses"):
        return answer(message, says("confirmed"))
    asked = {"method": "elicitation/create", "params": {"message": "Really?", "requestedSchema": _FORM}}
    return answer(message, {"resultType": "input_required", "inputRequests": {"sure": asked}, "requestState": "s"})


@dataclass(frozen=True, slots=True)
class _Relay:
    """Gives tools the suite's names, and makes a message of its arguments. Answers pass as they are, but for names in
    lists."""

    url: str
    run_id: str
    """A run that has ended, for the tool that is synchronous."""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        body, headers = await request.read(), request.headers.copy()
        message = json.loads(body) if body else {}
        params = message.get("params") if isinstance(message, dict) else None
        if isinstance(params, dict) and message.get("method") == "tools/call":
            named = str(params.get("name"))
            if named == _SYNCHRONOUS:
                params |= {"name": "run_get", "arguments": {"run_id": self.run_id}}
            elif named in AGENTS:
                params |= {"name": f"agent_{named}", "arguments": _arguments(named, params.get("arguments") or {})}
            if headers.get("Mcp-Name") == named:
                headers["Mcp-Name"] = params["name"]
            body = json.dumps(message).encode()
            headers["Content-Length"] = str(len(body))
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, self.url, data=body, headers=headers) as answered,
        ):
            said = await answered.read()
            if message.get("method") == "tools/list":
                for name in AGENTS:
                    said = said.replace(f'"agent_{name}"'.encode(), f'"{name}"'.encode())
            return web.Response(status=answered.status, body=said, headers=_passed(answered.headers))


def _arguments(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if name == _WORDLESS:
        return {}
    said = {"message": f"[[args {json.dumps({'seconds': given.get('seconds', 0)})}]]"}
    return {**said, "wait_s": 10} if name == "test_simple_text" else said


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: said for name, said in headers.items() if name.lower() not in ("content-length", "connection")}


@asynccontextmanager
async def _relaying(relay: _Relay) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(relay.handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@contextmanager
def offered(cluster: Cluster, folder: Path) -> Iterator[str]:
    """The address, for the suite, of a server that offers what it can of what the suite names."""
    with start_blocking_portal() as portal, ExitStack() as stack:
        asking = stack.enter_context(portal.wrap_async_context_manager(serving(McpServer({"confirm": _confirm}))))
        sources = folder / "tools.toml"
        sources.write_text(f'[mcp.referee]\nurl = "{asking.url}"\nrisky = false\n')
        environment = {"PALAVER_TOOL_SOURCES": str(sources), "PALAVER_TOOL_LISTS": str(folder / "lists")}
        stack.enter_context(one_more(cluster, "tools", **environment))
        stack.callback(cancel_waiting, cluster)
        for name, agent in AGENTS.items():
            published = cluster.http.put(f"/v1/agents/{name}", json=agent)
            assert published.status_code in (200, 201), published.text
        run = cluster.http.post("/v1/runs", json={"agent": "test_simple_text", "input": "Hello"}).json()
        cluster.http.get(f"/v1/runs/{run['id']}?wait=30").raise_for_status()
        relay = _Relay(f"{cluster.stack.url}/mcp", run["id"])
        yield stack.enter_context(portal.wrap_async_context_manager(_relaying(relay)))
