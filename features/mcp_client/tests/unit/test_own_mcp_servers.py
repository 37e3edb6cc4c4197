"""MCP servers that an agent names itself, over HTTP: where the operator allows their hosts, with secrets that nobody
reads, and by the operator's rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from palaver.config.settings import settings
from palaver.errors import ConfigurationError
from palaver.schemas.mcp_servers import OwnMcpServer, covers, may_fit
from palaver.schemas.models import AgentSpec
from palaver.tools import tool
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import SETTINGS, assert_problem, world

URL = "https://mcp.example.com/mcp"
HOSTS = ("mcp.example.com", "127.0.0.1:8000", "*.customers.example")
ALLOWING = SETTINGS.model_copy(update={"inline_mcp_hosts": HOSTS})
CANARY = "canary-of-a-header-77aa"


@tool
def github__search(text: str) -> str:
    """Search."""
    return text


@pytest.fixture
def own_settings() -> Iterator[None]:
    """Settings that are read in the test, and by nobody after it."""
    settings.cache_clear()
    yield
    settings.cache_clear()


def agent(url: str = URL, label: str = "web", **more: Any) -> dict[str, Any]:
    return {"model": "fake/echo", "mcp_servers": {label: {"url": url}}, **more}


async def refused(agent_: dict[str, Any], status: int, code: str, *pointers: str, **world_: Any) -> str:
    """The sentence of the first fault."""
    async with world(world_.pop("allowing", ALLOWING), **world_) as api:
        answer = await api.client.post("/v1/runs", json={"agent": agent_, "input": "hello"})
        problem = assert_problem(answer, status, code, *pointers)
        return str(problem["errors"][0]["message"])


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        (URL, True),
        ("https://MCP.example.com:443/other", True),
        ("http://mcp.example.com/mcp", True),
        ("https://mcp.example.com:8443/mcp", False),
        ("https://example.com/mcp", False),
        ("https://mcp.example.com.evil.example/mcp", False),
        ("http://127.0.0.1:8000/mcp", True),
        ("http://127.0.0.1/mcp", False),
        ("https://acme.customers.example/mcp", True),
        ("https://a.b.customers.example/mcp", False),
        ("https://customers.example/mcp", False),
        ("http://acme.customers.example/mcp", False),
        ("https://acme.customers.example:8443/mcp", False),
    ],
)
def test_a_host_is_allowed_as_it_is_listed(url: str, allowed: bool) -> None:
    assert OwnMcpServer(url=url).allowed_by(HOSTS) is allowed


@pytest.mark.usefixtures("own_settings")
@pytest.mark.parametrize("entry", ["*.com", "*.a.*", "*.10.0.0.1", "*.example.com:80", "https://a.example", "a*.b.c"])
def test_a_list_of_hosts_that_does_not_fit_is_refused(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_INLINE_MCP_HOSTS", f"example.com,{entry}")
    with pytest.raises(ConfigurationError, match="PALAVER_INLINE_MCP_HOSTS"):
        settings()


@pytest.mark.usefixtures("own_settings")
def test_a_list_of_hosts_is_read_as_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_INLINE_MCP_HOSTS", "MCP.example.com, *.Customers.example,10.0.0.8:80")
    assert settings().inline_mcp_hosts == ("mcp.example.com", "*.customers.example", "10.0.0.8:80")


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ({"web": {"command": ["npx", "x"]}}, "a command is never started for a request"),
        ({"web": {"url": "https://u:p@mcp.example.com/"}}, "has a login"),
        ({"web": {"url": f"{URL}?key=1"}}, "must have neither a query nor a fragment"),
        ({"web": {"url": "http://169.254.169.254/mcp"}}, "is an address at which nothing is ever asked"),
        ({"web": {"url": "ftp://mcp.example.com/"}}, "must begin with http:// or https://"),
        ({"agent": {"url": URL}}, "is reserved"),
        ({"a__b": {"url": URL}}, "is reserved"),
        ({"web": {"url": URL, "headers": {"Host": {"secret": "A"}}}}, "is of the request itself"),
        ({"web": {"url": URL, "headers": {"X": {"secret": "A"}, "x": {"secret": "B"}}}}, "has a header twice"),
        ({f"s{number}": {"url": URL} for number in range(limit_of("own_servers") + 1)}, "must have at most"),
    ],
)
def test_what_cannot_be_a_server_is_refused_with_a_sentence(servers: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        AgentSpec.model_validate({"model": "fake/echo", "mcp_servers": servers})


async def test_nothing_is_allowed_by_default_and_the_sentence_names_the_setting() -> None:
    why = await refused(agent(), 422, "endpoint_not_allowed", "/agent/mcp_servers/web/url", allowing=SETTINGS)
    assert why == "is at a host that PALAVER_INLINE_MCP_HOSTS does not allow; it is not set"
    why = await refused(agent("https://other.example/"), 422, "endpoint_not_allowed", "/agent/mcp_servers/web/url")
    assert why.endswith("does not allow; it allows: mcp.example.com, 127.0.0.1:8000, *.customers.example")


async def test_it_is_refused_wherever_an_agent_comes_in() -> None:
    other, place = agent("https://other.example/"), "/agent/mcp_servers/web/url"
    async with world(ALLOWING) as api:
        run = await api.submit(agent=agent())
        for method, path, body, where in (
            ("POST", "/v1/conversations", {"agent": other}, place),
            ("PATCH", run["links"]["conversation"], {"agent": other}, place),
            ("PUT", "/v1/agents/reader", other, place.removeprefix("/agent")),
            ("POST", f"{run['links']['self']}/retry", {"from_step": 1, "agent": other}, place),
        ):
            answer = await api.client.request(method, path, json=body)
            assert_problem(answer, 422, "endpoint_not_allowed", where)
        below = {"tools": ["agent_x"], "subagents": {"agent_x": {"agent": other}}, "model": "fake/echo"}
        answer = await api.client.post("/v1/runs", json={"agent": below, "input": "hello"})
        assert "mcp_servers/web/url" in assert_problem(answer, 422, "endpoint_not_allowed")["errors"][0]["message"]


async def test_an_agent_that_is_called_has_no_secrets_for_headers() -> None:
    child = agent()
    child["mcp_servers"]["web"]["headers"] = {"Authorization": {"secret": "TOKEN"}}
    below = {"tools": ["agent_x"], "subagents": {"agent_x": {"agent": child}}, "model": "fake/echo"}
    assert "headers are secrets of the conversation" in await refused(
        below, 422, "endpoint_not_allowed", "/agent/tools/0"
    )


async def test_a_run_shows_its_servers_and_no_secret_of_theirs() -> None:
    spec = agent()
    spec["mcp_servers"]["web"]["headers"] = {"Authorization": {"secret": "TOKEN", "prefix": "Bearer "}}
    async with world(ALLOWING) as api:
        run = await api.submit(agent=spec, secrets={"TOKEN": CANARY})
        shown = run["agent"]["mcp_servers"]["web"]
        assert (shown["url"], shown["headers"]) == (URL, spec["mcp_servers"]["web"]["headers"])
        for name in await api.redis.keys("*"):
            assert CANARY.encode() not in (await api.redis.dump(name) or b""), name
        # What was read can be sent again.
        await api.submit(agent=run["agent"], conversation_id=run["conversation_id"])
        plain = await api.submit(agent={"model": "fake/echo"})
        assert plain["agent"]["mcp_servers"] == {}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": ["github__search"]},
        {"client_tools": [{"name": "github__mine"}]},
        {},
    ],
)
async def test_a_label_is_nobody_elses(more: dict[str, Any]) -> None:
    spec = agent(label="github", **more)
    why = await refused(spec, 422, "duplicate_tool", "/agent/mcp_servers/github", tools=(github__search,))
    assert "take another one" in why


async def test_approvals_name_tools_that_nobody_knows_yet() -> None:
    async with world(ALLOWING) as api:
        await api.submit(agent=agent(approvals={"require": ["web__delete*"], "exempt": ["web__read"]}))
        await api.submit(agent=agent(tool_choice="required"))
    await refused(agent(approvals={"exempt": ["other__*"]}), 422, "unknown_tool", "/agent/approvals/exempt/0")


@pytest.mark.parametrize(
    ("rule", "pointer"),
    [
        ({"mcp_hosts": []}, "/agent/mcp_servers/web"),
        ({"mcp_hosts": ["*.customers.example"]}, "/agent/mcp_servers/web"),
        ({"tools": ["web__read_*"]}, "/agent/mcp_servers/web"),
    ],
)
async def test_a_rule_forbids_it(rule: dict[str, Any], pointer: str) -> None:
    why = await refused(agent(), 403, "policy_violation", pointer, rules={"r": rule})
    assert "the rule r " in why


async def test_a_rule_is_of_some_tenants() -> None:
    async with world(ALLOWING, rules={"r": {"when": {"tenants": ["acme"]}, "mcp_hosts": []}}) as api:
        assert (await api.submit(agent=agent()))["agent"]["mcp_servers"]
    why = {"when": {"tenants": ["default"]}, "mcp_hosts": []}
    await refused(agent(), 403, "policy_violation", "/agent/mcp_servers/web", rules={"r": why})


async def test_a_rule_for_agents_with_a_tool_is_for_those_that_may_have_it() -> None:
    rules = {"r": {"when": {"tools": ["*delete*"]}, "max_steps": 3}}
    async with world(ALLOWING, rules=rules) as api:
        assert (await api.submit(agent=agent()))["agent"]["max_steps"] == 3
        assert (await api.submit(agent={"model": "fake/echo"}))["agent"]["max_steps"] == 100


async def test_a_rule_that_fits_allows_it() -> None:
    rules = {"hosts": {"mcp_hosts": ["mcp.*"]}, "tools": {"tools": ["web__*"]}}
    async with world(ALLOWING, rules=rules) as api:
        await api.submit(agent=agent())


@pytest.mark.parametrize("require", ["risky", "always", ["web__delete"], ["*delete*"]])
async def test_an_approval_that_a_rule_demands_is_not_waived_for_tools_that_nobody_knows(require: Any) -> None:
    rules = {"r": {"approvals": {"require": require, "approver": "other"}}}
    waivers = (({"require": "never"}, "require"), ({"exempt": ["web__delete"]}, "exempt/0"))
    for waiver, place in waivers:
        await refused(agent(approvals=waiver), 403, "policy_violation", f"/agent/approvals/{place}", rules=rules)


async def test_the_floor_of_a_rule_names_all_of_a_server() -> None:
    async with world(ALLOWING, rules={"r": {"approvals": {"require": ["*delete*"]}}}) as api:
        run = await api.submit(agent=agent())
        assert run["agent"]["approvals"]["require"] == ["web__*"]


@pytest.mark.parametrize(
    ("pattern", "may", "all_"),
    [
        ("*", True, True),
        ("web__*", True, True),
        ("we*", True, True),
        ("web__r*", True, False),
        ("web__read", True, False),
        ("web__?", True, False),
        ("?eb__*", True, True),
        ("web", False, False),
        ("other__*", False, False),
        ("webs*", False, False),
    ],
)
def test_a_pattern_may_fit_or_covers_the_tools_of_a_server(pattern: str, may: bool, all_: bool) -> None:
    assert (may_fit(pattern, "web"), covers(pattern, "web")) == (may, all_)
