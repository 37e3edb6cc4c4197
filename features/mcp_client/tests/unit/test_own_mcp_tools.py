"""Servers that conversations name themselves, as workers ask them: against a server on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import web

from features.mcp_client.conversation_servers import McpOwnServers, OwnMcpTools
from features.mcp_client.tests.unit.mcp_server import McpServer, Message, answer, says, serving, tool
from palaver.config.settings import Settings
from palaver.errors import RetryableToolError, ToolError
from palaver.schemas.mcp_servers import marked_name
from palaver.schemas.models import AgentSpec
from palaver.steps.leases import Lease, LogTail
from palaver.tools import ToolContext
from palaver.vocabulary.ids import new_conversation_id, new_tag
from palaver.vocabulary.limits import LIMITS, all_limits, exceeded, limit_of
from palaver.vocabulary.step_kinds import MODEL
from tests.waiting import aeventually

HOSTILE = [
    tool("fit", annotations={"readOnlyHint": True, "idempotentHint": True}, outputSchema={"type": "string"}),
    tool("hidden", description="Look\u200b here<!-- and there -->."),
    tool("a.b"),
    tool("a-b"),
    tool("a_b"),
    tool("elsewhere", inputSchema={"type": "object", "properties": {"x": {"$ref": "https://evil.example/x"}}}),
    tool("x" * 200),
    {"description": "no name"},
    "no tool",
]


class Kept:
    """Lists that are kept in the test."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], bytes] = {}

    async def of(self, conversation_id: str, servers: Sequence[str]) -> Mapping[str, bytes]:
        """As ``KeptLists``."""
        return {name: self.texts[conversation_id, name] for name in servers if (conversation_id, name) in self.texts}

    async def keep(self, lease: Lease, server: str, text: bytes) -> bytes:
        """As ``KeptLists``."""
        return self.texts.setdefault((lease.conversation_id, server), text)


class Asking:
    """A process that asks such servers."""

    def __init__(self, kept: Kept, hosts: tuple[str, ...]) -> None:
        self.kept = kept
        self.own = McpOwnServers(Settings(inline_mcp_hosts=hosts), kept)

    async def tools(
        self, conversation: str = "conv_1", secrets: Mapping[str, str] | None = None, **servers: Any
    ) -> OwnMcpTools:
        """The tools of an agent with these servers."""
        body = orjson.dumps({"model": "fake/echo", "mcp_servers": servers})
        agent = AgentSpec.model_validate_json(body)
        lease = Lease("run_1", conversation, MODEL, "1", 1, 1, 1, 0.0, 60.0, agent, None, LogTail())
        self.context = ToolContext(run_id="run_1", conversation_id=conversation, secrets=secrets or {})
        return await self.own.tools_of(lease, self.context)

    async def call(self, tools: OwnMcpTools, name: str, **arguments: Any) -> object:
        """Call one."""
        return await tools.call(tools.declarations[name], arguments, self.context)

    async def tried(self, tools: OwnMcpTools, name: str) -> str:
        """The answer to a call, or its failure, once its server is tried again: nobody knocks for a while after one."""

        async def look() -> str:
            try:
                return str(await self.call(tools, name))
            except RetryableToolError as error:
                return "" if "a moment ago" in str(error) else str(error)

        return await aeventually(look)


def host_of(server: McpServer) -> str:
    return server.url.split("/")[2]


@asynccontextmanager
async def asking(server: McpServer, *, kept: Kept | None = None, hosts: tuple[str, ...] = ()) -> AsyncIterator[Asking]:
    process = Asking(kept or Kept(), hosts or (host_of(server),))
    try:
        yield process
    finally:
        await process.own.close()


async def test_what_is_fit_is_taken_and_no_word_about_it_counts(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(McpServer(listed=HOSTILE)) as server, asking(server) as process:
        tools = await process.tools(web={"url": server.url})
        told_apart = marked_name("web", "a.b")
        assert sorted(tools.declarations) == ["web__a-b", "web__a_b", told_apart, "web__fit", "web__hidden"]
        assert tools.declarations["web__hidden"].description == "Look here."
        assert {(each.risky, each.idempotent) for each in tools.declarations.values()} == {(True, False)}
        (text,) = process.kept.texts.values()
        assert b"annotations" not in text
        assert b"outputSchema" not in text
    # What a stranger calls his tools is no line of our log.
    assert not caplog.records


async def test_it_is_asked_once_in_a_conversation_whatever_comes_of_the_process() -> None:
    kept = Kept()
    async with serving(McpServer(listed=[tool("one")])) as server:
        for number in range(3):
            async with asking(server, kept=kept) as process:
                for _ in range(2):
                    tools = await process.tools(web={"url": server.url})
                    assert list(tools.declarations) == ["web__one"]
            # It describes itself otherwise by now.
            server.listed = [tool(f"other_{number}")]
        assert server.methods.count("tools/list") == 1
        async with asking(server, kept=kept) as process:
            assert list((await process.tools("conv_2", web={"url": server.url})).declarations) == ["web__other_2"]


@pytest.mark.parametrize(
    ("listed", "number"),
    [
        ([tool(f"t{number}") for number in range(limit_of("own_tools") + 9)], limit_of("own_tools")),
        ([tool(f"t{number}", description="x" * 30_000) for number in range(9)], 2),
    ],
)
async def test_more_than_may_be_is_left_out(listed: list[Any], number: int) -> None:
    async with serving(McpServer(listed=listed)) as server, asking(server) as process:
        tools = await process.tools(web={"url": server.url})
        assert len(tools.declarations) == number
        (text,) = process.kept.texts.values()
        assert len(text) < limit_of("own_list") + 1024


async def test_only_those_are_taken_that_the_agent_allows() -> None:
    listed = [*(tool(f"t{number}", description="x" * 30_000) for number in range(9)), tool("read_a"), tool("read_b")]
    async with serving(McpServer(listed=listed)) as server, asking(server) as process:
        tools = await process.tools(web={"url": server.url, "allow": ["read_*"]})
        assert list(tools.declarations) == ["web__read_a", "web__read_b"]


async def test_all_of_an_agent_are_no_more_than_an_agent_may_have() -> None:
    listed = [tool(f"t{number}") for number in range(60)]
    async with serving(McpServer(listed=listed)) as server, asking(server) as process:
        servers: dict[str, Any] = {label: {"url": server.url} for label in ("a", "b", "c")}
        tools = await process.tools(**servers)
        assert len(tools.declarations) == limit_of("agent_tools")


async def test_no_session_is_shared_by_two_conversations() -> None:
    async with serving(McpServer(listed=[tool("one")], modern=False)) as server, asking(server) as process:
        for conversation in ("conv_1", "conv_2", "conv_1"):
            tools = await process.tools(conversation, web={"url": server.url})
            await process.call(tools, "web__one")
        assert server.methods.count("initialize") == 2


async def test_each_conversation_is_asked_for_with_its_own_secret() -> None:
    header = {"headers": {"Authorization": {"secret": "T", "prefix": "Bearer "}}}
    async with serving(McpServer(listed=[tool("one")])) as server, asking(server) as process:
        for conversation, value in (("conv_1", "secret-one"), ("conv_2", "secret-two"), ("conv_1", "secret-new")):
            tools = await process.tools(conversation, {"T": value}, web={"url": server.url, **header})
            await process.call(tools, "web__one")
            assert server.heads[-1]["Authorization"] == f"Bearer {value}"
        asked = len(server.requests)
        tools = await process.tools("conv_3", {}, web={"url": server.url, **header})
        assert list(tools.declarations) == ["web__list_tools"]
        with pytest.raises(ToolError, match="no secret 'T'"):
            await process.call(tools, "web__list_tools")
        assert len(server.requests) == asked


async def test_one_that_refuses_has_a_tool_that_asks_again() -> None:
    async with serving(McpServer(listed=[tool("one")], status=503)) as server, asking(server) as process:
        tools = await process.tools(web={"url": server.url})
        assert list(tools.declarations) == ["web__list_tools"]
        assert not tools.declarations["web__list_tools"].risky
        assert "web was not reached" in await process.tried(tools, "web__list_tools")
        server.status = 0
        # Nobody asks by himself again so soon.
        assert list((await process.tools(web={"url": server.url})).declarations) == ["web__list_tools"]
        assert await process.tried(tools, "web__list_tools") == "web has these tools now: web__one"
        assert list((await process.tools(web={"url": server.url})).declarations) == ["web__one"]


async def test_none_of_its_tools_is_called_by_the_name_of_the_one_that_asks() -> None:
    """That one needs no approval, and may be called again after a loss."""
    listed = [tool("list_tools"), tool("list tools"), tool("one")]
    async with serving(McpServer(listed=listed)) as server, asking(server) as process:
        assert list((await process.tools(web={"url": server.url})).declarations) == ["web__one"]


async def test_a_slow_one_holds_up_another_for_its_own_list_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.mcp_client.conversation_servers._WITHIN", 0.3)

    class Slow(McpServer):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

    slow, quick = Slow(), McpServer(listed=[tool("one")])
    async with serving(slow), serving(quick), asking(quick, hosts=(host_of(slow), host_of(quick))) as process:
        tools = await process.tools(slow={"url": slow.url}, web={"url": quick.url})
        assert sorted(tools.declarations) == ["slow__list_tools", "web__one"]


async def test_a_host_that_the_worker_does_not_list_is_asked_nothing() -> None:
    kept = Kept()
    async with serving(McpServer(listed=[tool("one")])) as server:
        async with asking(server, kept=kept) as process:
            await process.tools(web={"url": server.url})
        asked = len(server.requests)
        async with asking(server, kept=kept, hosts=("other.example",)) as process:
            tools = await process.tools(web={"url": server.url})
            with pytest.raises(ToolError, match="PALAVER_INLINE_MCP_HOSTS of the worker does not allow the host 127"):
                await process.call(tools, "web__one")
        assert len(server.requests) == asked


async def test_a_name_of_a_pattern_leads_to_no_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def within(*_: Any) -> list[dict[str, Any]]:
        return [{"hostname": "a", "host": "10.0.0.1", "port": 443, "family": 2, "proto": 0, "flags": 0}]

    monkeypatch.setattr("workers.connections.lookup_threads.LookupThreads.resolve", within)
    async with asking(McpServer(url="http://x"), hosts=("*.customers.example",)) as process:
        tools = await process.tools(web={"url": "https://acme.customers.example/mcp"})
        assert list(tools.declarations) == ["web__list_tools"]
        assert "leads into a private network" in await process.tried(tools, "web__list_tools")


async def test_a_call_that_may_have_reached_it_is_not_made_again() -> None:
    async def breaks(_: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return answer(message, says("late"))

    server = McpServer({"one": breaks}, listed=[tool("one", annotations={"idempotentHint": True})])
    async with serving(server), asking(server) as process:
        tools = await process.tools(web={"url": server.url})
        with pytest.raises(ToolError, match="it may or may not have taken effect") as failed:
            await process.call(tools, "web__one")
        assert not isinstance(failed.value, RetryableToolError)
        assert server.calls == ["one"]


def bounded(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let a process keep so many servers open."""
    limit = replace(all_limits()["own_open"], value=most)
    monkeypatch.setattr("palaver.vocabulary.limits.LIMITS", {**LIMITS, "own_open": limit})


async def test_servers_that_nobody_uses_are_closed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, 2)
    closed = exceeded["own_open"]
    async with serving(McpServer(listed=[tool("one")], modern=False)) as server, asking(server) as process:
        for number in range(6):
            tools = await process.tools(f"conv_{number}", web={"url": server.url})
            await process.call(tools, "web__one")
        assert (len(process.own.open), exceeded["own_open"] - closed) == (2, 4)
        # One that is used again is connected again, and knows its list.
        await process.call(await process.tools("conv_0", web={"url": server.url}), "web__one")
        assert (server.methods.count("tools/list"), server.methods.count("initialize")) == (6, 7)
        # The least recently used one is closed first: this one is still open.
        await process.call(await process.tools("conv_5", web={"url": server.url}), "web__one")
        assert server.methods.count("initialize") == 7


async def test_one_that_is_closed_between_its_list_and_a_call_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, 1)
    async with serving(McpServer(listed=[tool("one")], modern=False)) as server, asking(server) as process:
        tools = await process.tools("conv_1", web={"url": server.url})
        await process.tools("conv_2", web={"url": server.url})
        await process.call(tools, "web__one")
        assert (len(process.own.open), server.methods.count("tools/call")) == (1, 1)


@pytest.mark.slow
async def test_whoever_opens_many_closes_his_own(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, 4)
    quiet, busy = new_conversation_id(1, tag=new_tag()), new_tag()
    async with serving(McpServer(listed=[tool("one")], modern=False)) as server, asking(server) as process:
        await process.tools(quiet, web={"url": server.url})
        for _ in range(20):
            await process.tools(new_conversation_id(1, tag=busy), web={"url": server.url})
        begun = server.methods.count("initialize")
        await process.call(await process.tools(quiet, web={"url": server.url}), "web__one")
        assert server.methods.count("initialize") == begun
        assert len(process.own.open) == 4


async def test_what_is_in_use_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, 1)
    waits, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: McpServer, __: web.Request, message: Message) -> web.StreamResponse:
        waits.set()
        await go_on.wait()
        return answer(message, says("late"))

    server = McpServer({"one": slow}, listed=[tool("one")])
    async with serving(server), asking(server) as process:
        tools = await process.tools("conv_1", web={"url": server.url})
        call = asyncio.create_task(process.call(tools, "web__one"))
        await waits.wait()
        for number in range(2, 6):
            await process.tools(f"conv_{number}", web={"url": server.url})
        go_on.set()
        assert "late" in str(await call)
        assert len(process.own.open) == 1
