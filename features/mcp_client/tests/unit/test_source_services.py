"""The service behind the tools of a file: what a table may say of it, what its tools declare, and what the step knows
of a call that failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from features.mcp_client.source import KIND
from features.mcp_client.tables import McpServer as Section
from features.mcp_client.tests.unit.mcp_server import Behaviour, McpServer, Message, answer, error, says, serving, tool
from features.mcp_client.tests.unit.mcp_tools import opened_at
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, ToolFailure
from palaver.errors.finding import ToolFinding
from palaver.steps.retry import TOOL_CALL, RetryPolicy
from palaver.steps.tool_retry import ToolPolicy
from palaver.steps.verdicts import GiveUp, RetryAfter
from palaver.tools import ToolContext, ToolDeclaration
from tests.unit.declared_tools import tools_of_file
from workers.sources.guests import declared_sources

_WRONG = {
    'limit_key = "a b"': "limit_key: 1 to 64 letters, digits, _, . and -, not 'a b'",
    'limit_key = ""': "limit_key: 1 to 64 letters",
    "max_in_flight = 0": "max_in_flight: a whole number from 1 to 1,000,000, not 0",
    'max_in_flight = "5"': "max_in_flight: must be a valid integer",
    "max_in_flight = 1.5": "max_in_flight: must be a valid integer",
    "per_minute = true": "per_minute: must be a valid integer",
    "per_minute = 1000001": "per_minute: a whole number from 1 to 1,000,000, not 1000001",
    'queue = "model"': "queue: 'model' cannot be a queue of tools: its name has 1 to 32 of a-z",
    'queue = "A"': "queue: 'A' cannot be a queue of tools",
    "queue = 1": "queue: must be a valid string",
    "retry = true": "retry: must be an object",
    "retry.atempts = 3": "retry: /atempts: no such name: 'atempts'",
    "retry.rules.timeot = { attempts = 3 }": "retry: /rules/timeot: no such name: 'timeot'; did you mean timeout?",
    "retry.rules.timeout = { attempts = 0 }": "retry: /rules/timeout/attempts",
    "retry.rules.context_window = { attempts = 2 }": "retry: no call of a tool fails with context_window",
    'retry.rules.timeout = { then = "fallback_model" }': "retry: timeout: a tool has no fallback model",
    "retry.tools = { attempts = 1 }": "retry: /tools: no such name: 'tools'",
    'errors = { "409" = "rate_limted" }': "errors: 409: there is no class 'rate_limted'; did you mean 'rate_limited'?",
    'errors = { "409" = "stuck" }': "errors: 409: there is no class 'stuck'",
    'errors = { Conflict = "rate_limited" }': "errors.Conflict",
    "limitkey = 1": "is no key here; did you mean 'limit_key'?",
}
_HTTP = '[http.crm]\nbase_url = "http://127.0.0.1:1"\n'
_TOOL = '[http.crm.tools.find]\npath = "/"\n'
_MCP = '[mcp.s]\nurl = "https://x.example/"\n'
_PLACES = [
    f"{_HTTP}{{}}\n{_TOOL}",
    f"{_HTTP}{_TOOL}{{}}",
    f"{_MCP}{{}}",
    f"{_MCP}[mcp.s.tools.a]\n{{}}",
]
"""A table of a source, and one of a tool, of each kind."""


@pytest.mark.parametrize("place", _PLACES, ids=["http", "tool of http", "mcp", "tool of mcp"])
def test_a_value_that_does_not_fit_is_a_sentence_in_each_table(place: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    for wrong, said in _WRONG.items():
        path.write_text(place.format(wrong))
        with pytest.raises(ConfigurationError) as refused:
            declared_sources(path)
        assert said in str(refused.value), wrong


_SERVICES = """
[http.crm]
base_url = "http://127.0.0.1:1"
max_in_flight = 4
per_minute = 60
queue = "slow"
retry.rules.timeout = { attempts = 2 }

[http.crm.tools.find]
path = "/find"

[http.crm.tools.own]
path = "/own"
per_minute = 5
queue = "gpu"
retry = { patience = 60 }

[http.crm.tools.shared]
path = "/shared"
limit_key = "erp"

[http.plain]
base_url = "http://127.0.0.1:1"

[http.plain.tools.usual]
path = "/"
"""


async def test_a_tool_has_what_its_table_says_or_that_of_its_source(tmp_path: Path) -> None:
    async with tools_of_file(tmp_path, _SERVICES, beside=()) as tools:
        seen = {tool.name: tool for tool in tools.declarations}
        limits = {name: (tool.limit_key, tool.max_in_flight, tool.per_minute) for name, tool in seen.items()}
        assert limits == {
            "find": ("http.crm", 4, 60),
            "own": ("own", None, 5),
            "shared": ("erp", None, None),
            "usual": (None, None, None),
        }
        assert [seen[name].queue for name in ("find", "own", "usual")] == ["slow", "gpu", None]
        assert tools.queues == ("slow", "gpu")
        assert _policy(seen["find"]).own == RetryPolicy.parse({"rules": {"timeout": {"attempts": 2}}})
        assert _policy(seen["own"]).own == RetryPolicy.parse({"patience": 60})
        assert _policy(seen["usual"]).own == RetryPolicy()
        assert set(tools.services) == {"http.crm", "own", "erp"}


async def test_two_tables_cannot_declare_two_limits_of_one_service(tmp_path: Path) -> None:
    text = _SERVICES.replace('limit_key = "erp"', 'limit_key = "http.crm"\nmax_in_flight = 9')
    with pytest.raises(ConfigurationError, match=r"declare different limits for 'http\.crm'"):
        async with tools_of_file(tmp_path, text, beside=()):
            pass


async def test_a_server_and_its_tools_have_them_too(tmp_path: Path) -> None:
    table = """
max_in_flight = 2
queue = "gpu"
tools.b = { limit_key = "b", retry = { rules = { timeout = { attempts = 2 } } } }
"""
    async with serving(McpServer(listed=[tool("a"), tool("b")])) as server:
        async with opened_at(tmp_path, server, table) as tools:
            a, b = tools.box.declarations
        own = {"b": {"limit_key": "b", "retry": {"rules": {}}}}
        table_of = {"url": server.url, "max_in_flight": 2, "queue": "gpu", "tools": own}
        section = Section.model_validate(table_of)
        (finding,) = [each async for each in KIND.check(Settings(), {"s": section})]
    assert [(each.limit_key, each.max_in_flight, each.queue) for each in (a, b)] == [
        ("mcp.s", 2, "gpu"),
        ("b", None, "gpu"),
    ]
    assert list(_policy(b).rules.rules) != []
    assert finding.found.endswith(
        "2 of 2 tools. All: queue gpu. a: wait together as mcp.s, at most 2 calls at a time. b: wait together as b."
    )


def _policy(declared: ToolDeclaration) -> ToolPolicy:
    return ToolPolicy(
        TOOL_CALL, declared.idempotent, None if declared.retry is None else RetryPolicy.parse(declared.retry)
    )


def _status(status: int, **headers: str) -> Behaviour:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        return web.Response(status=status, headers={name.replace("_", "-"): text for name, text in headers.items()})

    return behave


def _error(code: int) -> Behaviour:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        return error(message, code)

    return behave


async def _fails(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    return answer(message, says("no such ticket", isError=True))


async def _cut(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


_ENDS: dict[str, tuple[Behaviour, str, bool, bool, bool]] = {
    "429": (_status(429, Retry_After="7"), "rate_limited", False, False, True),
    "503": (_status(503), "provider_error", False, True, True),
    "500": (_status(500), "provider_error", True, True, False),
    "401": (_status(401), "authentication", False, False, False),
    "403": (_status(403), "permission", False, False, False),
    "cut": (_cut, "connection", True, True, False),
    "code of the file": (_error(-31000), "rate_limited", False, False, True),
    "other code": (_error(-32000), "tool_error", True, False, False),
    "its own failure": (_fails, "tool_error", True, False, False),
}
"""How a call ends; its class, whether it may have been taken, whether it looks like an outage, and whether it is tried
again though the tool is not idempotent."""


async def test_the_step_knows_how_a_call_of_a_server_ended(tmp_path: Path) -> None:
    behaviours = {name.replace(" ", "_"): behaviour for name, (behaviour, *_) in _ENDS.items()}
    table = 'errors = { "-31000" = "rate_limited" }'
    async with serving(McpServer(behaviours)) as server, opened_at(tmp_path, server, table) as tools:
        for name, (_, error_class, sent, outage, again) in _ENDS.items():
            failure = await tools.failure(name.replace(" ", "_"))
            finding = failure.finding
            assert finding is not None, name
            assert (finding.failure.error_class, finding.sent, finding.sign is not None) == (error_class, sent, outage)
            judged = _judged(failure, tools.box.declarations[0])
            assert isinstance(judged, RetryAfter if again else GiveUp), name
            assert isinstance(judged, RetryAfter) or judged.failure.message.lower().count("may or may not") <= 1
        assert server.calls == [name.replace(" ", "_") for name in _ENDS]


async def test_a_server_that_is_away_is_an_outage_and_nobody_knocks_twice(tmp_path: Path) -> None:
    async with serving(McpServer(listed=[tool("a")])) as server, opened_at(tmp_path, server) as tools:
        await tools.call("a")
    async with opened_at(tmp_path, server) as tools:
        first, second = (await tools.failure("a")).finding, (await tools.failure("a")).finding
    assert first is not None
    assert second is not None
    assert (first.failure.error_class, first.sent, first.sign is not None) == ("connection", False, True)
    assert (second.failure.error_class, second.sent, second.sign) == ("connection", False, None)
    assert second.failure.retry_after is not None


async def test_a_status_is_of_the_class_that_the_file_has_for_it(tmp_path: Path) -> None:
    async def locked(request: web.Request) -> web.Response:
        return web.Response(status=409, headers={"Retry-After": "2"})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", locked)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    text = f"""
[http.crm]
base_url = "http://127.0.0.1:{runner.addresses[0][1]}"
errors = {{ "409" = "rate_limited" }}
[http.crm.tools.add]
method = "POST"
path = "/"
[http.crm.tools.other]
method = "POST"
path = "/"
errors = {{ "409" = "quota_exhausted" }}
"""
    found: dict[str, ToolFinding | None] = {}
    try:
        async with tools_of_file(tmp_path, text, beside=()) as tools:
            for name in ("add", "other"):
                with pytest.raises(ToolFailure) as raised:
                    await tools.call(name, {}, ToolContext())
                found[name] = raised.value.finding
            judged = _judged(raised.value, tools["other"])
    finally:
        await runner.cleanup()
    add, other = found["add"], found["other"]
    assert add is not None
    assert other is not None
    assert (add.failure.error_class, add.sent, add.failure.retry_after) == ("rate_limited", False, 2)
    assert (other.failure.error_class, other.sent) == ("quota_exhausted", True)
    assert isinstance(judged, GiveUp)


def _judged(failure: ToolFailure, declared: ToolDeclaration) -> RetryAfter | GiveUp:
    assert failure.finding is not None
    return _policy(declared).decide(failure.finding, 1, 0.0, random=lambda: 0.5)
