"""Which revision is spoken with an MCP server that refuses one, and names those that it speaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from features.mcp_client.tests.unit.mcp_server import McpServer, Message, error, serving, tool
from features.mcp_client.tests.unit.mcp_tools import opened_at
from palaver.errors import RetryableToolError


async def test_a_server_that_speaks_another_revision_by_now_is_asked_which(tmp_path: Path) -> None:
    server = McpServer(listed=[tool("t")])
    async with serving(server), opened_at(tmp_path, server) as tools:
        await tools.call("t")
        supported = {"supported": ["2025-11-25"]}

        async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
            return error(message, -32022, status=400, data=supported)

        server.behaviours["t"] = behave
        assert type(await tools.failure("t")) is RetryableToolError
        server.behaviours, server.modern = {}, False
        assert await tools.call("t", {"a": 1}) == '{"a": 1}'


def _refusing(server: McpServer, refusals: list[tuple[str, int, object]]) -> McpServer:
    """The server, once it has refused the revision of a method with a code and data, as often as these say."""
    handle = server.handle

    async def refuse(request: web.Request) -> web.StreamResponse:
        message = await request.json() if request.method == "POST" else {}
        if refusals and message.get("method") == refusals[0][0]:
            server.requests.append(message)
            _, code, data = refusals.pop(0)
            return error(message, code, "Unsupported protocol version", status=400, data=data)
        return await handle(request)

    server.handle = refuse  # type: ignore[method-assign]
    return server


_HAS_OURS = {"supported": ["2027-01-01", "2026-07-28", 7, None], "requested": "2026-07-28"}


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call"])
async def test_a_server_that_refuses_our_revision_and_names_it_is_asked_again_without_a_handshake(
    method: str, tmp_path: Path
) -> None:
    server = _refusing(McpServer(listed=[tool("t")]), [(method, -32022, _HAS_OURS)])
    async with serving(server), opened_at(tmp_path, server) as tools:
        assert await tools.call("t", {"a": 1}) == '{"a": 1}'
        assert "initialize" not in server.methods
        assert server.methods.count("tools/call") == (2 if method == "tools/call" else 1)
        numbers = [each["id"] for each in server.requests]
        assert len({*numbers}) == len(numbers)


async def test_a_server_that_refuses_what_it_names_again_and_again_is_asked_twice(tmp_path: Path) -> None:
    server = _refusing(McpServer(listed=[tool("t")]), [("tools/call", -32022, _HAS_OURS)] * 2)
    async with serving(server), opened_at(tmp_path, server) as tools:
        failure = await tools.failure("t")
        assert (type(failure), server.methods.count("tools/call")) == (RetryableToolError, 2)
        assert "another revision" in str(failure)


@pytest.mark.parametrize("code", [-32022, -32602])
@pytest.mark.parametrize("method", ["server/discover", "initialize"])
async def test_a_server_that_names_an_older_revision_gets_a_handshake_in_it(
    method: str, code: int, tmp_path: Path
) -> None:
    older = {"supported": ["2025-03-26", "2024-11-05", "1999-01-01"]}
    server = _refusing(McpServer(listed=[tool("t")], modern=False), [(method, code, older)])
    async with serving(server), opened_at(tmp_path, server) as tools:
        assert await tools.call("t", {"a": 1}) == '{"a": 1}'
        asked = [each["params"]["protocolVersion"] for each in server.requests if each.get("method") == "initialize"]
        assert asked == (["2025-03-26"] if method == "server/discover" else ["2025-11-25", "2025-03-26"])


@pytest.mark.parametrize("method", ["server/discover", "initialize"])
async def test_a_server_that_speaks_none_of_our_revisions_is_said_to(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusals: list[tuple[str, int, object]] = [(method, -32022, {"supported": ["2031-01-01"]})]
    server = _refusing(McpServer(listed=[tool("t")], modern=method != "initialize"), refusals)
    async with serving(server), opened_at(tmp_path, server) as tools:
        assert tools.names == []
    assert "it speaks '2031-01-01', and none of ours: 2026-07-28, 2025-11-25" in caplog.text
    assert server.methods.count("initialize") == (method == "initialize")
