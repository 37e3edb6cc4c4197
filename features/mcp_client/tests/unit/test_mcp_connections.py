"""Connections to MCP servers: both eras, over HTTP and with a process, and what becomes of calls when one breaks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from features.mcp_client import connection
from features.mcp_client.tests.unit import mcp_process
from features.mcp_client.tests.unit.mcp_server import McpServer, Message, answer, event, says, serving, stream, tool
from features.mcp_client.tests.unit.mcp_tools import OpenedTools, opened, opened_at
from palaver.config.settings import Settings
from palaver.errors import RetryableToolError, ToolError, ToolTimeout
from palaver.tools import ToolContext
from tests.unit.test_guarded_resolver import Names
from tests.waiting import PATIENCE, aeventually
from workers.connections import guarded_resolver
from workers.sources import open_toolbox
from workers.sources.companions import companions
from workers.sources.guests import declared_sources

UNKNOWN = "it may or may not have taken effect"


class Process:
    """A server as a process, and its journal."""

    def __init__(self, folder: Path, behaviour: str) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.command = [sys.executable, "-S", mcp_process.__file__, behaviour, str(self.journal)]

    @property
    def lines(self) -> list[str]:
        """All that came to it."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    @property
    def lives(self) -> list[int]:
        """The process ids that it has had."""
        return [int(line.split()[1]) for line in self.lines if line.startswith("life ")]

    @asynccontextmanager
    async def opened(self, table: str = "") -> AsyncIterator[OpenedTools]:
        """Its tools."""
        async with opened(self.folder, f"command = {json.dumps(self.command)}\n{table}") as tools:
            yield tools

    async def has(self, line: str) -> None:
        """Wait until this came to it."""
        await aeventually(lambda: line in self.lines)


def _is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("discovery", [True, False], ids=["discovered", "without discovery"])
async def test_a_server_of_the_newest_revision_has_no_handshake(discovery: bool, tmp_path: Path) -> None:
    server = McpServer(listed=[tool("t")], discovery=discovery)
    async with serving(server), opened_at(tmp_path, server) as tools:
        assert await tools.call("t", {"a": 1}) == '{"a": 1}'
        assert server.methods == ["server/discover", "tools/list", "tools/call"]


async def test_a_server_of_an_older_revision_has_a_session(tmp_path: Path) -> None:
    server = McpServer(listed=[tool("t")], modern=False)
    async with serving(server):
        async with opened_at(tmp_path, server) as tools:
            assert await tools.call("t", {"a": 1}) == '{"a": 1}'
            assert await tools.call("t", {"a": 2}) == '{"a": 2}'
        begun = ["server/discover", "initialize", "notifications/initialized"]
        assert server.methods == [*begun, "tools/list", "tools/call", "tools/call", "DELETE"]
        head = server.heads[4]
        assert (head["Mcp-Session-Id"], head["MCP-Protocol-Version"]) == ("session-1", "2025-11-25")
        assert "Mcp-Method" not in head


@pytest.mark.parametrize("named", [{}, {"said": "as an error"}], ids=["404", "404 with an error"])
async def test_a_call_whose_session_is_gone_was_not_taken_and_is_made_again_in_a_new_one(
    named: dict[str, str], tmp_path: Path
) -> None:
    server = McpServer(listed=[tool("t")], modern=False)
    async with serving(server), opened_at(tmp_path, server) as tools:
        await tools.call("t")
        server.session, server.headers = "session-2", named
        failure = await tools.failure("t")
        assert type(failure) is RetryableToolError
        assert str(failure) == "s was not reached: it does not know the session any more (HTTP 404)"
        assert len(server.calls) == 2
        assert await tools.call("t", {"a": 1}) == '{"a": 1}'
        assert server.methods.count("initialize") == 2
        assert len(server.calls) == 3
    async with serving(server), opened_at(tmp_path, server):
        # Whoever starts next looks whether the server still has those tools.
        assert server.methods.count("tools/list") == 2


@pytest.mark.parametrize("session", ["session-1", ""], ids=["with a session", "without"])
async def test_a_server_of_an_older_revision_hears_of_a_cancelled_call_and_has_its_ping_answered(
    session: str, tmp_path: Path
) -> None:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        response = await stream(request)
        await response.write(event({"jsonrpc": "2.0", "id": "p", "method": "ping"}))
        await asyncio.Event().wait()
        return response

    server = McpServer({"t": behave}, modern=False, session=session)
    async with serving(server), opened_at(tmp_path, server, "timeout = 0.5") as tools:
        assert type(await tools.failure("t")) is ToolTimeout
        await aeventually(lambda: "notifications/cancelled" in server.methods)
        number = next(each["id"] for each in server.requests if each["method"] == "tools/call")
        (cancelled,) = (each for each in server.requests if each.get("method") == "notifications/cancelled")
        assert cancelled["params"]["requestId"] == number
        assert {"jsonrpc": "2.0", "id": "p", "result": {}} in server.requests


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_stream_that_ends_before_its_answer_is_asked_for_and_its_call_is_not_sent_again(
    goes_on: bool, tmp_path: Path
) -> None:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        response = await stream(request)
        await response.write(b"id: e1\nretry: 10\ndata:\n\n")
        return response

    async def resumed(server: McpServer, request: web.Request, _: Message) -> web.StreamResponse:
        response = await stream(request)
        number = next(each["id"] for each in server.requests if each["method"] == "tools/call")
        if goes_on and request.headers["Last-Event-ID"] == "e2":
            await response.write(event({"jsonrpc": "2.0", "id": number, "result": says("late")}))
        elif goes_on:
            await response.write(b"id: e2\ndata:\n\n")
        return response

    server = McpServer({"t": behave}, modern=False, resumed=resumed)
    async with serving(server), opened_at(tmp_path, server) as tools:
        if goes_on:
            assert await tools.call("t") == "late"
            ids = [head.get("Last-Event-ID") for head in server.heads if "Last-Event-ID" in head]
            assert ids == ["e1", "e2"]
        else:
            assert "ended without an answer" in str(await tools.failure("t"))
            assert server.methods.count("GET") == 3
        assert server.calls == ["t"]


async def test_a_session_that_is_gone_while_a_call_is_under_way_leaves_it_in_doubt(tmp_path: Path) -> None:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        response = await stream(request)
        await response.write(b"id: e1\nretry: 10\ndata:\n\n")
        server.session = "session-2"
        del server.behaviours["t"]
        return response

    async def gone(server: McpServer, request: web.Request, _: Message) -> web.StreamResponse:
        return web.Response(status=404)

    server = McpServer({"t": behave}, listed=[tool("t")], modern=False, resumed=gone)
    async with serving(server), opened_at(tmp_path, server) as tools:
        failure = await tools.failure("t")
        assert type(failure) is ToolError
        assert UNKNOWN in str(failure)
        assert await tools.call("t", {"a": 1}) == '{"a": 1}'
        assert server.methods.count("initialize") == 2


async def test_a_server_that_is_down_is_not_knocked_at_by_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FIRST", 25.0)
    server = McpServer(listed=[tool("t")])
    async with serving(server), opened_at(tmp_path, server):
        pass
    async with opened_at(tmp_path, server) as tools:
        failures = await asyncio.gather(*(tools.failure("t") for _ in range(20)))
        assert all(type(failure) is RetryableToolError for failure in failures)
        assert {str(failure) for failure in failures} == {"s was not reached: no connection: Connection refused"}
        at_once = await tools.failure("t")
        assert isinstance(at_once, RetryableToolError)
        assert at_once.retry_after is not None
        assert 0 < at_once.retry_after <= 25


async def test_a_server_that_comes_back_is_found(tmp_path: Path) -> None:
    server = McpServer(listed=[tool("t")])
    async with serving(server), opened_at(tmp_path, server):
        pass
    async with opened_at(tmp_path, server) as tools:
        await tools.failure("t")
        port = int(server.url.split(":")[2].partition("/")[0])
        app = web.Application()
        app.router.add_post("/mcp", server.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    assert await tools.call("t") == "{}"
                    break
                except RetryableToolError as failure:
                    await asyncio.sleep(failure.retry_after or 0.05)
        await runner.cleanup()


async def test_a_server_that_is_down_holds_up_only_its_own_tools(tmp_path: Path) -> None:
    async with serving(McpServer(listed=[tool("t")])) as server:
        other = f'[mcp.up]\nurl = "{server.url}"'
        async with opened(tmp_path, 'url = "http://127.0.0.1:1/mcp"\nconnect_timeout = 0.6', other) as tools:
            assert tools.names == ["up__t"]
            assert await tools.box.call("up__t", {}, ToolContext()) == "{}"


async def test_a_server_whose_name_leads_to_where_clouds_keep_keys_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever looks: there may be any number of attempts within the time for it."""
    names = Names(*[("169.254.169.254",)] * 100)
    monkeypatch.setattr(guarded_resolver, "DefaultResolver", lambda: names)
    async with opened(tmp_path, 'url = "https://tools.example.com/mcp"\nconnect_timeout = 1.5') as tools:
        assert tools.names == []
        assert "the host of the server leads to an address at which nothing is asked" in caplog.text


async def test_a_secret_that_is_not_set_leaves_the_server_to_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = McpServer(listed=[tool("t")])
    async with serving(server), opened_at(tmp_path, server, 'headers.X-Key = { env = "NOT_SET" }') as tools:
        assert tools.names == []
        assert "[mcp.s] is left out: NOT_SET is not set" in caplog.text
        assert server.requests == []


async def test_tokens_are_got_with_the_clients_secret_and_renewed_once_they_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms: list[dict[str, str]] = []
    valid = "token-of-nobody-at-all"

    async def give(request: web.Request) -> web.Response:
        forms.append({**await request.post(), "Authorization": request.headers["Authorization"]})  # type: ignore[dict-item]
        return web.json_response({"access_token": f"token-number-{len(forms)}", "token_type": "Bearer"})

    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        if request.headers["Authorization"] != f"Bearer {valid}":
            return web.Response(status=401)
        return answer(message, says("in"))

    app = web.Application()
    app.router.add_post("/token", give)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("CLIENT_SECRET", "secret/of the client")
    try:
        table = f"""
        [mcp.s.oauth]
        token_url = "http://127.0.0.1:{runner.addresses[0][1]}/token"
        client_id = "me"
        client_secret_env = "CLIENT_SECRET"
        scope = "tools"
        """
        server = McpServer({"t": behave})
        async with serving(server), opened_at(tmp_path, server, table) as tools:
            valid = "token-number-1"
            assert await tools.call("t") == "in"
            assert forms == [
                {
                    "grant_type": "client_credentials",
                    "resource": server.url,
                    "scope": "tools",
                    "Authorization": "Basic bWU6c2VjcmV0JTJGb2YlMjB0aGUlMjBjbGllbnQ=",
                }
            ]
            valid = "token-number-2"
            assert await tools.call("t") == "in"
            valid = "none"
            assert "refused the worker's credentials" in str(await tools.failure("t"))
            assert len(forms) == 3
    finally:
        await runner.cleanup()


async def test_they_run_on_a_loop_that_many_calls_share(tmp_path: Path) -> None:
    """As in a worker whose tools have no processes of their own."""
    process, path = Process(tmp_path, "modern"), tmp_path / "tools.toml"
    path.write_text(f"[mcp.s]\ncommand = {json.dumps(process.command)}")
    settings = Settings(tool_sources=path, tool_lists=tmp_path / "lists")
    sources = [declared.opening for declared in declared_sources(path)]
    async with open_toolbox(settings, sources, run_blocking=None) as box:
        calls = (box.call("s__echo", {"n": number}, ToolContext()) for number in range(20))
        assert [json.loads(str(result))["n"] for result in await asyncio.gather(*calls)] == [*range(20)]
    # The one that gave the list answers all calls.
    assert len(process.lives) == 1


@pytest.mark.parametrize("behaviour", ["modern", "older", "noisy", "brittle"])
async def test_a_process_answers_calls(behaviour: str, tmp_path: Path) -> None:
    process = Process(tmp_path, behaviour)
    async with process.opened() as tools:
        assert await tools.call("echo", {"a": 1}) == '{"a": 1}'
        results = await asyncio.gather(*(tools.call("echo", {"n": number}) for number in range(20)))
        assert [json.loads(str(result))["n"] for result in results] == [*range(20)]
        assert json.loads(str(await tools.call("ask"))) == {"jsonrpc": "2.0", "id": "q", "result": {}}
    assert ("initialize" in process.lines) == (behaviour != "modern")
    assert not any(map(_is_there, process.lives))
    assert not companions


async def test_an_old_process_that_says_nothing_to_what_it_does_not_know_is_begun_with(tmp_path: Path) -> None:
    process = Process(tmp_path, "silent")
    async with process.opened("connect_timeout = 8") as tools:
        assert await tools.call("echo") == "{}"


async def test_a_process_sees_the_variables_that_the_file_names_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANTED", "for the server")
    monkeypatch.setenv("PALAVER_REDIS_URL", "redis://:password@localhost")
    monkeypatch.setenv("OTHER", "not for it")
    async with Process(tmp_path, "modern").opened('env = ["WANTED"]') as tools:
        seen = json.loads(str(await tools.call("env")))
        assert seen["WANTED"] == "for the server"
        assert not {"PALAVER_REDIS_URL", "OTHER"} & seen.keys()
        assert await tools.call("cwd") == os.getcwd()


async def test_a_process_that_dies_at_a_call_is_started_anew_and_the_call_is_not_sent_again(tmp_path: Path) -> None:
    process = Process(tmp_path, "modern")
    async with process.opened("tools.die.idempotent = true") as tools:
        waiting = asyncio.create_task(tools.failure("wait"))
        await process.has("tools/call wait")
        assert type(await tools.failure("die")) is RetryableToolError
        failure = await waiting
        assert type(failure) is ToolError
        assert str(failure) == f"s did not answer: its process has ended: {UNKNOWN}"
        assert await tools.call("echo", {"a": 1}) == '{"a": 1}'
        assert process.lines.count("tools/call die") == process.lines.count("tools/call wait") == 1
        # One for the list and the calls before, one for what came after.
        assert len(process.lives) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [("flood", "a line of more than 16,777,216 bytes"), ("noise", "writes lines that are no messages")],
)
async def test_a_process_that_writes_without_an_end_is_ended(name: str, said: str, tmp_path: Path) -> None:
    process = Process(tmp_path, "modern")
    async with process.opened() as tools:
        failure = await tools.failure(name)
        assert said in str(failure)
        assert UNKNOWN in str(failure)
        assert await tools.call("echo") == "{}"
        assert not _is_there(process.lives[-2])
    # Pipes that were left open are told here, and not in another test.
    gc.collect()


@pytest.mark.slow
async def test_a_process_that_asks_and_does_not_listen_is_answered_as_far_as_there_is_room(tmp_path: Path) -> None:
    async with Process(tmp_path, "modern").opened() as tools:
        assert await tools.call("pings") == "{}"
        assert await tools.call("echo") == "{}"


async def test_a_server_that_asks_without_an_end_gets_a_few_answers(tmp_path: Path) -> None:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        response = await stream(request)
        for number in range(5_000):
            await response.write(event({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"}))
        await response.write(event({"jsonrpc": "2.0", "id": message["id"], "result": says("done")}))
        return response

    async with serving(McpServer({"t": behave}, modern=False)) as server, opened_at(tmp_path, server) as tools:
        assert await tools.call("t") == "done"
    assert 0 < server.most_noted <= 16


async def test_a_process_hears_of_a_cancelled_call(tmp_path: Path) -> None:
    process = Process(tmp_path, "modern")
    seen: list[float | None] = []
    context = ToolContext(report=lambda _, fraction: seen.append(fraction))
    async with process.opened() as tools:
        task = asyncio.create_task(tools.call("wait", context=context))
        await aeventually(lambda: seen)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == [0.25]
        await process.has("notifications/cancelled")
        assert await tools.call("echo") == "{}"


async def test_a_process_that_does_not_want_to_end_is_ended(tmp_path: Path) -> None:
    process = Process(tmp_path, "deaf")
    async with process.opened() as tools:
        await tools.call("echo")
    assert not any(map(_is_there, process.lives))


async def test_a_process_of_a_foreign_revision_has_no_tools(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Process(tmp_path, "foreign").opened("connect_timeout = 20") as tools:
        assert tools.names == []
        assert "it speaks '1999-01-01', and none of ours" in caplog.text


async def test_a_command_that_is_not_there_has_no_tools(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path, 'command = ["/nowhere/at-all"]\nconnect_timeout = 1.5') as tools:
        assert tools.names == []
        assert "it does not start: No such file or directory" in caplog.text
