"""The credentials with which an MCP server is asked for a tenant or a conversation: never another one's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from features.mcp_client.server import Server
from features.mcp_client.tests.unit.mcp_server import McpServer, Message, answer, says, serving, tool
from features.mcp_client.tests.unit.mcp_tools import OpenedTools, opened_at
from palaver.errors import ConfigurationError, ToolFailure
from palaver.secrets.redaction import redact
from palaver.tools import ToolContext
from palaver.vocabulary.ids import new_conversation_id, new_run_id
from workers.sources.guests import declared_sources

_SECRETS = {"OWN_KEY": "key-of-the-source", "ACME_KEY": "key-of-acme-0815", "BOLT_KEY": "key-of-bolt-4711"}
_TABLE = """
headers.Authorization = { env = "OWN_KEY", prefix = "Bearer " }
tenants.acme11.headers.Authorization = { env = "ACME_KEY", prefix = "Bearer " }
tenants.bolt22.headers.X-Key = { env = "BOLT_KEY" }
"""


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _SECRETS.items():
        monkeypatch.setenv(name, value)


async def _echo(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    names = ("Authorization", "X-Key", "Mcp-Session-Id")
    return answer(message, says(json.dumps([request.headers.get(name) for name in names])))


def _call(tag: str, secrets: Mapping[str, str] | None = None, conversation: str = "") -> ToolContext:
    conversation = conversation or new_conversation_id(1, tag=tag)
    return ToolContext(run_id=new_run_id("00", tag), conversation_id=conversation, secrets=secrets or {})


async def _seen(tools: OpenedTools, context: ToolContext) -> list[Any]:
    seen: list[Any] = json.loads(str(await tools.call("t", context=context)))
    return seen


@pytest.mark.parametrize("modern", [True, False])
async def test_a_tenant_is_asked_for_with_its_own_secret_alone(modern: bool, tmp_path: Path) -> None:
    server = McpServer({"t": _echo}, modern=modern)
    async with serving(server), opened_at(tmp_path, server, _TABLE) as tools:
        tags = ["", "acme11", "bolt22", "other3"]
        seen = await asyncio.gather(*(_seen(tools, _call(tag)) for tag in tags * 3))
        own, acme, bolt = "Bearer key-of-the-source", "Bearer key-of-acme-0815", "key-of-bolt-4711"
        assert [each[:2] for each in seen] == [[own, None], [acme, None], [None, bolt], [own, None]] * 3
        # A session was begun as somebody, and is nobody else's.
        assert server.methods.count("initialize") == (0 if modern else 3)
        assert redact(f"{acme} {bolt}") == "Bearer [redacted] [redacted]"


async def test_a_tenant_that_is_not_named_may_be_refused(tmp_path: Path) -> None:
    server = McpServer({"t": _echo})
    async with serving(server), opened_at(tmp_path, server, f"tenants_only = true\n{_TABLE}") as tools:
        assert (await _seen(tools, _call("acme11")))[0] == "Bearer key-of-acme-0815"
        for tag in ("", "other3"):
            with pytest.raises(ToolFailure, match="s is not asked for this tenant: nothing was called"):
                await tools.call("t", context=_call(tag))
        assert len(server.calls) == 1


async def test_a_tenant_whose_secret_is_missing_is_not_asked_for_with_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ACME_KEY")
    server = McpServer({"t": _echo})
    async with serving(server), opened_at(tmp_path, server, _TABLE) as tools:
        with pytest.raises(ToolFailure, match="is not asked for this tenant"):
            await tools.call("t", context=_call("acme11"))
        assert (await _seen(tools, _call("bolt22")))[1] == "key-of-bolt-4711"
        assert len(server.calls) == 1
    assert "[mcp.s.tenants.acme11]: nothing is asked for this tenant: ACME_KEY is not set" in caplog.text


@pytest.mark.parametrize("modern", [True, False])
async def test_a_conversation_is_asked_for_with_its_own_secret(
    modern: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "_KEPT", 3)
    server = McpServer({"t": _echo}, modern=modern)
    table = 'headers.Authorization = { secret = "crm", prefix = "Bearer " }'
    async with serving(server), opened_at(tmp_path, server, table) as tools:
        for number in (*range(8), *range(8)):
            seen = await _seen(tools, _call("", {"crm": f"token-{number}"}, f"conv_{number}"))
            assert seen[0] == f"Bearer token-{number}"
        # Two conversations with one secret are two, and so are two tenants.
        for tag in ("", "acme11"):
            for conversation in ("conv_a", "conv_b"):
                assert (await _seen(tools, _call(tag, {"crm": "same"}, conversation)))[0] == "Bearer same"
        assert server.methods.count("initialize") == (0 if modern else 1 + 16 + 4)
        # The list was asked for with none.
        listing = [head for each, head in zip(server.requests, server.heads, strict=True) if "list" in each["method"]]
        assert ["Authorization" in head for head in listing] == [False]
        refused = {"no secret 'crm'": {}, "the conversation's secret 'crm'": {"crm": "a\r\nX-Evil: 1"}}
        for said, secrets in refused.items():
            with pytest.raises(ToolFailure, match=said):
                await tools.call("t", context=_call("", secrets))
        assert len(server.calls) == 20


async def test_connections_of_calls_under_way_are_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "_KEPT", 1)
    gate = asyncio.Event()

    async def slow(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        if len(server.calls) == 20:
            gate.set()
        await gate.wait()
        return await _echo(server, request, message)

    server = McpServer({"t": slow}, listed=[tool("t")])
    table = 'headers.Authorization = { secret = "crm" }'
    async with serving(server), opened_at(tmp_path, server, table) as tools:
        seen = await asyncio.gather(*(_seen(tools, _call("", {"crm": f"t{n}"}, f"c{n}")) for n in range(20)))
        assert [each[0] for each in seen] == [f"t{n}" for n in range(20)]


async def test_each_tenant_has_tokens_of_its_own_for_its_resource(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str]] = []

    async def token(request: web.Request) -> web.Response:
        form = await request.post()
        who = str(form["client_id"])
        asked.append((who, str(form["client_secret"]), str(form["resource"])))
        return web.json_response({"access_token": f"token-of-{who}", "token_type": "Bearer"})

    app = web.Application()
    app.router.add_post("/token", token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    own, acme = (
        f'{{ token_url = "{url}", method = "post", client_id = "{who}", client_secret_env = "{env}"{more} }}'
        for who, env, more in (("own", "OWN_KEY", ""), ("acme", "ACME_KEY", ', resource = "https://crm.example/acme"'))
    )
    server, table = McpServer({"t": _echo}), f"oauth = {own}\ntenants.acme11.oauth = {acme}"
    try:
        async with serving(server), opened_at(tmp_path, server, table) as tools:
            for tag, who in (("acme11", "acme"), ("", "own"), ("acme11", "acme")):
                assert (await _seen(tools, _call(tag)))[0] == f"Bearer token-of-{who}"
    finally:
        await runner.cleanup()
    assert sorted(asked) == [
        ("acme", _SECRETS["ACME_KEY"], "https://crm.example/acme"),
        ("own", _SECRETS["OWN_KEY"], server.url),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("tenants.acme11 = {}", "needs headers or oauth"),
        ("tenants.Acme.headers.A = { env = 'A' }", "mcp.s.tenants.Acme"),
        ("tenants_only = true", "there are no tenants"),
        ("tenants.acme11.headers.Host = { env = 'A' }", "is of the request itself"),
        ("tenants.acme11.headers.A = { env = 'A', secret = 'b' }", "has either env"),
        (
            "tenants.acme11.oauth = { token_url = 'http://t.example/', client_id = 'a', client_secret_env = 'A' }",
            "http:// sends secrets in plain text",
        ),
    ],
)
def test_a_table_of_a_tenant_that_does_not_fit_is_a_sentence(lines: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    path.write_text(f"[mcp.s]\nurl = 'https://x.example/'\n{lines}")
    with pytest.raises(ConfigurationError) as refused:
        declared_sources(path)
    assert said in str(refused.value)
