"""Tools over HTTP: the request that a call becomes, what its answer is to the model, and what may not be asked."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from palaver import ImagePart, ToolContext
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, InvalidToolCall, RetryableToolError, ToolError, ToolTimeout
from palaver.errors.sentences import IN_DOUBT
from palaver.schemas.models import ToolCall
from palaver.vocabulary.limits import limit_of
from tests.unit.declared_tools import tools_of_file
from tests.unit.test_guarded_resolver import Names
from tests.waiting import aeventually
from workers.commands import tool_sources
from workers.connections.guarded_resolver import GuardedResolver
from workers.sources import Toolbox, sources_of
from workers.sources.containment import failure_of
from workers.sources.guests import declared_sources
from workers.steps.step_functions import answer

_TOKEN = "tok-4711-very-secret-0815"
_NAMES = ("find", "search", "name_of", "head", "put", "add", "add_form", "drop", "slow")
_TOOLS = """
[http.crm.tools.find]
path = "/customers/{id}"
description = "Look a customer up."

[http.crm.tools.search]
path = "/customers?kind=person"
parameters.properties = { name = { type = "string" }, tags = { type = "array" }, near = { type = "object" } }

[http.crm.tools.name_of]
path = "/customers/{id}"
answer = "/customer/names/0"

[http.crm.tools.head]
method = "HEAD"
path = "/"

[http.crm.tools.add]
method = "POST"
path = "/customers"
parameters.properties = { name = { type = "string" }, age = { type = "integer" } }
parameters.required = ["name"]

[http.crm.tools.add_form]
method = "POST"
path = "/customers"
send = "form"
parameters.properties = { name = { type = "string" } }

[http.crm.tools.put]
method = "PUT"
path = "/customers/{id}"
idempotent = true

[http.crm.tools.drop]
method = "DELETE"
path = "/customers/{id}"
risky = true

[http.crm.tools.slow]
method = "POST"
path = "/slow"
timeout = 0.1
"""


@dataclass
class Service:
    """A service that answers with the same bytes each time, or hangs up without any."""

    port: int = 0
    answers: Callable[[str], bytes | None] = lambda _: _http()
    requests: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    stays: bool = False
    """Stay until the other one has gone."""
    open: int = 0
    """Connections."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        with suppress(asyncio.IncompleteReadError, OSError):  # the other one has gone
            await self._answer(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self.open -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        size = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0)
        self.requests.append(head)
        self.bodies.append(await reader.readexactly(size))
        if (answers := self.answers(head)) is not None:
            writer.write(answers.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if head.startswith("HEAD") else answers)
            await writer.drain()
        if self.stays:
            await reader.read()

    @property
    def paths(self) -> list[str]:
        return [head.split(" ")[1] for head in self.requests]


def _http(status: str = "200 OK", body: bytes = b'{"ok": true}', kind: str = "application/json", **more: str) -> bytes:
    headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    async with server:
        service.port = server.sockets[0].getsockname()[1]
        yield service
        await aeventually(lambda: not service.open)


@pytest.fixture
async def tools(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Toolbox]:
    monkeypatch.setenv("CRM_TOKEN", _TOKEN)
    section = f"""
        [http.crm]
        base_url = "http://127.0.0.1:{service.port}/api/"
        headers.Authorization = {{ env = "CRM_TOKEN", prefix = "Bearer " }}
        headers.X-User = {{ secret = "user" }}
        headers.X-Plain = "yes"
        """
    async with tools_of_file(tmp_path, section + _TOOLS) as opened:
        yield opened


def _context() -> ToolContext:
    return ToolContext(idempotency_key="run_1:1:c", secrets={"user": "u-17"}, traceparent="00-aa-bb-01")


async def _call(tools: Toolbox, tool: str, /, **arguments: Any) -> Any:
    _, checked = tools.check(tool, json.dumps(arguments))
    return await tools.call(tool, checked, _context())


async def test_a_call_is_one_request_with_the_key_of_the_call_and_the_headers_of_the_file(
    service: Service, tools: Toolbox
) -> None:
    assert await _call(tools, "find", id="4711") == '{"ok": true}'
    head = service.requests[0].lower()
    assert service.requests[0].startswith("GET /api/customers/4711 HTTP/1.1\r\n")
    for line in (
        f"authorization: bearer {_TOKEN}",
        "x-user: u-17",
        "x-plain: yes",
        "idempotency-key: run_1:1:c",
        "traceparent: 00-aa-bb-01",
    ):
        assert line in head.splitlines()


def test_methods_that_change_nothing_are_idempotent_and_the_file_says_what_the_others_are(tools: Toolbox) -> None:
    assert {tool.name: tool.idempotent for tool in tools.declarations if tool.name in _NAMES} == {
        **dict.fromkeys(("find", "search", "name_of", "head", "put"), True),
        **dict.fromkeys(("add", "add_form", "drop", "slow"), False),
    }
    assert [tool.name for tool in tools.declarations if tool.risky] == ["drop"]
    assert tools["find"].parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
    }


@pytest.mark.parametrize(
    "argument",
    [
        "a/b",
        "../admin",
        "..%2Fadmin",
        "%2e%2e",
        "a?b=c",
        "a#b",
        "a;b",
        "a\\b",
        "a b",
        "é😀",
        "a\r\nX: y",
        "//evil",
        "@x:1",
    ],
)
async def test_no_argument_leaves_its_part_of_the_path(service: Service, tools: Toolbox, argument: str) -> None:
    await _call(tools, "find", id=argument)
    (path,) = service.paths
    assert path.startswith("/api/customers/")
    segment = path.removeprefix("/api/customers/")
    assert not {*segment} & {*"/?#;\\ "}
    assert unquote(segment) == argument


@pytest.mark.parametrize("argument", ["", ".", "..", "..."])
async def test_an_argument_that_would_be_another_path_is_refused(
    service: Service, tools: Toolbox, argument: str
) -> None:
    with pytest.raises(InvalidToolCall):
        await _call(tools, "drop", id=argument)
    with pytest.raises(InvalidToolCall, match="do not fit"):
        await _call(tools, "find", id="1", other="2")
    assert service.requests == []


async def test_other_arguments_go_into_the_query_a_form_or_a_body(service: Service, tools: Toolbox) -> None:
    await _call(tools, "search", name="Ann & Bob", tags=["a", 1, None], near={"x": 1})
    await _call(tools, "add", name="Zoë", age=7)
    await _call(tools, "add_form", name="Zoë =")
    assert service.paths[0] == "/api/customers?kind=person&name=Ann%20%26%20Bob&tags=a&tags=1&near=%7B%22x%22%3A%201%7D"
    assert json.loads(service.bodies[1]) == {"name": "Zoë", "age": 7}
    assert service.bodies[2] == b"name=Zo%C3%AB%20%3D"
    assert "content-type: application/x-www-form-urlencoded" in service.requests[2].lower()


@pytest.mark.parametrize(
    ("tool", "status", "error", "said", "error_class", "sent"),
    [
        ("add", "400 Bad", ToolError, 'the service answered HTTP 400: {"ok": true}', "invalid_request", True),
        ("find", "404 Not Found", ToolError, "HTTP 404", "not_found", True),
        ("find", "401 Unauthorized", ToolError, "HTTP 401", "authentication", True),
        ("add", "409 Conflict", ToolError, "HTTP 409", "invalid_request", True),
        ("add", "425 Early", RetryableToolError, "HTTP 425", "provider_error", False),
        ("add", "429 Slow", RetryableToolError, "HTTP 429", "rate_limited", False),
        ("add", "503 Away", RetryableToolError, "HTTP 503", "provider_error", False),
        ("add", "500 Oops", ToolError, f"The service answered HTTP 500.{IN_DOUBT} It said: ", "provider_error", True),
        ("drop", "502 Oops", ToolError, IN_DOUBT, "provider_error", True),
        ("put", "502 Oops", RetryableToolError, "HTTP 502", "provider_error", True),
        ("find", "500 Oops", RetryableToolError, "HTTP 500", "provider_error", True),
        ("add", "303 See Other", ToolError, "leads elsewhere", "tool_error", True),
    ],
)
async def test_a_refusal_is_classified(
    service: Service,
    tools: Toolbox,
    tool: str,
    status: str,
    error: type[ToolError],
    said: str,
    error_class: str,
    sent: bool,
) -> None:
    service.answers = lambda _: _http(status, Retry_After="7", Location="/elsewhere")
    with pytest.raises(ToolError) as raised:
        await _call(tools, tool, **({"name": "x"} if tool == "add" else {"id": "1"}))
    assert type(raised.value) is error
    assert said in str(raised.value)
    assert failure_of(raised.value).retry_after == (None if status.startswith("303") else 7.0)
    assert len(service.requests) == 1
    found = raised.value.finding
    assert found is not None
    assert (found.failure.error_class, found.sent) == (error_class, sent)


@pytest.mark.parametrize(("tool", "error"), [("add", ToolError), ("drop", ToolError), ("put", RetryableToolError)])
@pytest.mark.parametrize("answered", [None, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", b"HTTP/1.1 2"])
async def test_an_answer_that_is_lost_leaves_in_doubt_what_was_done_and_nothing_is_sent_again(
    service: Service, tools: Toolbox, tool: str, error: type[ToolError], answered: bytes | None
) -> None:
    service.answers = lambda _: answered
    with pytest.raises(ToolError) as raised:
        await _call(tools, tool, **({"name": "x"} if tool == "add" else {"id": "1"}))
    assert type(raised.value) is error
    assert (IN_DOUBT in str(raised.value)) is (error is ToolError)
    assert len(service.requests) == 1


async def test_what_is_no_http_is_a_lost_answer(service: Service, tools: Toolbox) -> None:
    service.answers = lambda _: b"SSH-2.0-OpenSSH_9.9\r\n\r\n"
    with pytest.raises(ToolError, match="may or may not"):
        await _call(tools, "add", name="x")


@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:{free}", "http://nowhere.invalid", "https://127.0.0.1:{port}", "http://[::1]:{free}"]
)
async def test_a_service_that_is_not_reached_did_nothing_and_is_asked_again(
    service: Service, tmp_path: Path, base: str
) -> None:
    closed = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    free = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    url = base.format(free=free, port=service.port)
    async with tools_of_file(tmp_path, f'[http.crm]\nbase_url = "{url}"\nconnect_timeout = 0.3\n{_TOOLS}') as tools:
        with pytest.raises(RetryableToolError, match="nothing was sent"):
            await _call(tools, "add", name="x")
    assert service.bodies == []


async def test_a_call_that_takes_too_long_is_in_doubt(service: Service, tools: Toolbox) -> None:
    service.answers = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
    service.stays = True
    with pytest.raises(ToolTimeout, match=r"slow took longer than 0.1 s\. It may or may not"):
        await _call(tools, "slow")
    assert len(service.requests) == 1


async def test_redirects_are_followed_within_the_service_by_requests_that_change_nothing(
    service: Service, tools: Toolbox
) -> None:
    service.answers = lambda head: _http("301 Moved", Location="/api/there/") if "there" not in head else _http()
    assert await _call(tools, "find", id="1") == '{"ok": true}'
    assert service.paths == ["/api/customers/1", "/api/there/"]
    with pytest.raises(ToolError, match="HTTP 301: it leads elsewhere"):
        await _call(tools, "add", name="x")
    assert len(service.requests) == 3
    service.answers = lambda _: _http("302 Found", Location="/api/again")
    with pytest.raises(ToolError, match="from one address to the next"):
        await _call(tools, "find", id="1")


@pytest.mark.parametrize("place", ["http://127.0.0.1:{port}/", "//localhost/", "http://u:p@127.0.0.1/", "file:///etc"])
async def test_no_redirect_leads_to_another_host(service: Service, tools: Toolbox, place: str) -> None:
    other = Service()
    async with await asyncio.start_server(other.serve, "127.0.0.1", 0) as server:
        location = place.format(port=server.sockets[0].getsockname()[1])
        service.answers = lambda _: _http("302 Found", Location=location)
        with pytest.raises(ToolError, match="leads elsewhere"):
            await _call(tools, "find", id="1")
    assert (len(service.requests), other.requests) == (1, [])


async def test_a_secret_that_the_service_repeats_is_told_to_nobody(service: Service, tools: Toolbox) -> None:
    service.answers = lambda head: _http("400 Bad", head.encode(), "text/plain")
    with pytest.raises(ToolError) as raised:
        await _call(tools, "find", id="1")
    assert _TOKEN not in failure_of(raised.value).message
    service.answers = lambda head: _http("200 OK", head.encode(), "text/plain")
    told = answer(ToolCall(id="c", name="find", arguments="{}"), await _call(tools, "find", id="1"))
    assert _TOKEN not in str(told.message.content)
    assert "[redacted]" in str(told.message.content)
    with pytest.raises(ToolError, match="no secret 'user'"):
        await tools.call("find", {"id": "1"}, ToolContext())


async def test_the_model_gets_text_a_part_of_the_json_or_an_image(service: Service, tools: Toolbox) -> None:
    for body, kind, said in (
        (b"", "text/plain", "HTTP 200, without content"),
        ("Zoë".encode("latin-1"), "text/plain; charset=latin-1", "Zoë"),
        (b"a\xff", "text/plain; charset=no-such", "a�"),
        (b"<a/>", "application/atom+xml", "<a/>"),
        (b"\x89PNG", "image/png", (ImagePart.of(b"\x89PNG", "image/png"),)),
    ):
        service.answers = lambda _, body=body, kind=kind: _http("200 OK", body, kind)  # type: ignore[misc]
        assert await _call(tools, "find", id="1") == said
    service.answers = lambda _: _http("200 OK", b'{"customer": {"names": ["Zoe", "Z"]}}')
    assert await _call(tools, "name_of", id="1") == "Zoe"
    for wrong in (b"{}", b"[", b'{"customer": {"names": []}}'):
        service.answers = lambda _, body=wrong: _http("200 OK", body)  # type: ignore[misc]
        with pytest.raises(ToolError, match="HTTP 200"):
            await _call(tools, "name_of", id="1")
    service.answers = lambda _: _http("200 OK", b"%PDF", "application/pdf")
    with pytest.raises(ToolError, match="application/pdf, which cannot be shown"):
        await _call(tools, "find", id="1")
    service.answers = lambda _: _http("200 OK", b"", "text/html", ETag="x")
    assert json.loads(await _call(tools, "head"))["etag"] == "x"


@pytest.mark.slow
async def test_of_a_large_answer_the_beginning_is_read(service: Service, tools: Toolbox) -> None:
    large = b"x" * (limit_of("http_answer") + 5)
    service.answers = lambda _: _http("200 OK", large, "text/plain")
    assert "[cut: " in (text := await _call(tools, "find", id="1"))
    assert len(text) < limit_of("tool_result_usual") + 100
    bomb = gzip.compress(b"\0" * 200_000_000, 9)
    service.answers = lambda _: _http("200 OK", bomb, "text/plain", Content_Encoding="gzip")
    assert "[cut: " in await _call(tools, "find", id="1")
    service.answers = lambda _: _http("200 OK", b"[" + large, "application/json")
    with pytest.raises(ToolError, match="with more than"):
        await _call(tools, "name_of", id="1")


@pytest.mark.parametrize(
    ("options", "leads_to", "reached"),
    [
        ("", "10.0.0.7", False),
        ("private = true", "10.0.0.7", True),
        ("private = true", "169.254.169.254", False),
        ("private = true", "127.0.0.1", False),
        ("", "93.184.216.34", True),
    ],
)
async def test_a_public_name_leads_into_no_private_network_unless_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, leads_to: str, reached: bool
) -> None:
    resolved: list[Any] = []

    async def resolve(self: GuardedResolver, *args: Any, **options: Any) -> list[Any]:
        self._names = Names((leads_to,))  # type: ignore[assignment]
        resolved.append(await whole(self, *args, **options))
        raise OSError("nobody is asked")

    whole = GuardedResolver.resolve
    monkeypatch.setattr(GuardedResolver, "resolve", resolve)
    text = f'[http.crm]\nbase_url = "http://crm.example.com"\n{options}\n{_TOOLS}'
    async with tools_of_file(tmp_path, text) as tools:
        with pytest.raises(ToolError) as raised:
            await _call(tools, "add", name="x")
    assert bool(resolved) is reached
    assert isinstance(raised.value, RetryableToolError) is reached
    assert reached or "[http.crm] leads" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('base_url = "http://169.254.169.254/latest"\ntools.x.path = "/"', "nothing is asked at this address"),
        ('base_url = "ftp://x"\ntools.x.path = "/"', "crm.base_url"),
        ('base_url = "http://u:p@x.example"\ntools.x.path = "/"', "crm.base_url"),
        ('base_url = "http://x.example"', "crm.tools"),
        ('base_url = "http://x.example"\ntools.x.path = "/{a"', "a brace that is no {argument}"),
        ('base_url = "http://x.example"\ntools.x.path = "/?a={a}"', "an argument in its query"),
        ('base_url = "http://x.example"\ntools.x.path = "/../{a}"', "a part that leads elsewhere"),
        ('base_url = "http://x.example"\ntools.x.pth = "/"', "did you mean 'path'?"),
        ('base_url = "http://x.example"\nheaders.Host = "y"\ntools.x.path = "/"', "Host is said by how"),
        ('base_url = "http://x.example"\nheaders.A = { env = "A", secret = "B" }\ntools.x.path = "/"', "either env"),
        ('base_url = "http://x.example"\nheaders.A = "a\\nb"\ntools.x.path = "/"', "printable ASCII"),
        ('base_url = "http://x.example"\ntools.x = { path = "/", method = "GET", send = "json" }', "a GET has no body"),
        ('base_url = "http://x.example"\ntools.x = { path = "/", parameters = { type = "array" } }', "of an object"),
        ('base_url = "http://x.example"\ntools.x = { path = "/", parameters = { "$ref" = "http://y" } }', "parameters"),
    ],
)
def test_a_table_that_does_not_fit_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "tools.toml"
    file.write_text(f"[http.crm]\n{text}\n")
    with pytest.raises(ConfigurationError) as refused:
        sources_of(Settings(tool_sources=file))
    assert said in str(refused.value)


async def test_a_secret_that_is_missing_keeps_the_worker_from_starting(tmp_path: Path) -> None:
    text = '[http.crm]\nbase_url = "http://x.example"\nheaders.A = { env = "NO_SUCH_TOKEN" }\n' + _TOOLS
    with pytest.raises(ConfigurationError, match=r"PALAVER_TOOL_SOURCES: http\.crm: NO_SUCH_TOKEN is not set"):
        async with tools_of_file(tmp_path, text):
            pass


async def test_check_looks_at_each_service(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tools.toml"
    base = f'base_url = "http://127.0.0.1:{service.port}/api"\n'
    file.write_text(
        f'[http.well]\n{base}tools.a.path = "/"\n'
        f'[http.unset]\n{base}headers.A = {{ env = "NO_SUCH_TOKEN" }}\ntools.b.path = "/"\n'
        '[http.away]\nbase_url = "http://nowhere.invalid"\ntools.c.path = "/"\n'
    )
    here = Settings(tool_sources=file)
    sources = declared_sources(here.tool_sources)
    assert await tool_sources._check(here, sources, as_json=False) == 1
    said = capsys.readouterr().out
    assert "http.well  ok     It answers HTTP 200 to a HEAD of its address, in " in said
    assert "http.unset  WRONG  NO_SUCH_TOKEN is not set" in said.replace("PALAVER_TOOL_SOURCES: http.unset: ", "")
    assert "http.away  WRONG  the service could not be reached" in said
    assert service.requests[0].startswith("HEAD /api/ HTTP/1.1")
    service.answers = lambda _: _http("401 Unauthorized", b"")
    assert await tool_sources._check(here, [sources[0].only(["http.well"])], as_json=False) == 1
    assert "look at the secret" in capsys.readouterr().out
