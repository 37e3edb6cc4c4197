"""A host of the Model Context Protocol, in either era, at an API on a fake Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.unit.api_world import AGENT, World, world

MODERN: Final = "2026-07-28"
PREFIX: Final = "io.modelcontextprotocol/"
TASKS: Final = f"{PREFIX}tasks"
WITH_TASKS: Final[Mapping[str, Any]] = {"extensions": {TASKS: {}}, "elicitation": {}}
ACCEPT: Final = {"accept": "application/json, text/event-stream"}
_NAMED: Final = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


@dataclass
class Host:
    """A client; ``capabilities`` of None is one of the older era."""

    client: httpx.AsyncClient
    capabilities: Mapping[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, method: str, params: Mapping[str, Any] | None = None, /, **headers: str) -> httpx.Response:
        """Send a request as the era has it."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": "1", "method": method, "params": dict(params or {})}
        given = {**ACCEPT, **self.headers}
        if self.capabilities is not None:
            given |= {"mcp-protocol-version": MODERN, "mcp-method": method}
            if method in _NAMED:
                given["mcp-name"] = body["params"][_NAMED[method]]
            meta = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientCapabilities": self.capabilities}
            body["params"]["_meta"] = {**meta, **body["params"].get("_meta", {})}
        return await self.client.post("/mcp", json=body, headers={**given, **headers})

    async def result(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The result of a request."""
        answer = await self.send(method, params)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        assert (told["jsonrpc"], told["id"]) == ("2.0", "1")
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        return await self.result("tools/call", {"name": tool, "arguments": arguments})

    async def state(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The state that a tool answers with."""
        result = await self.call(tool, **arguments)
        assert not result["isError"], result
        state: dict[str, Any] = result["structuredContent"]
        return state

    async def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The refusal that a tool answers with."""
        result = await self.call(tool, **arguments)
        assert result["isError"], result
        refusal: dict[str, Any] = result["structuredContent"]
        return refusal


async def publish(api: World, name: str, **changes: Any) -> None:
    """Keep an agent on the server."""
    answer = await api.client.put(f"/v1/agents/{name}", json={**AGENT, **changes})
    assert answer.status_code in (200, 201), answer.text


async def run_of(api: World, run_id: str) -> dict[str, Any]:
    """The run, as the native dialect has it."""
    run: dict[str, Any] = (await api.client.get(f"/v1/runs/{run_id}")).json()
    return run


@asynccontextmanager
async def hosted(*args: Any, **changes: Any) -> AsyncIterator[World]:
    """An API that speaks this dialect, with the agent ``support`` on it."""
    async with world(*args, **changes) as api:
        await publish(api, "support")
        yield api
