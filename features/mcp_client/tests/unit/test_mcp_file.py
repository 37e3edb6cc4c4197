"""Tables ``[mcp.NAME]``: what they may say, ``palaver tools check`` of them, and what they cost who has none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from features.mcp_client.offered_tools import digest_of
from features.mcp_client.source import KIND
from features.mcp_client.tables import McpServer as Section
from features.mcp_client.tests.unit.mcp_server import McpServer, serving, tool
from palaver.config.settings import settings
from palaver.errors import ConfigurationError
from tests.pages import ROOT
from tests.waiting import PATIENCE
from workers.commands import tool_sources
from workers.sources.guests import declared_sources

_OAUTH = 'oauth = { token_url = "https://t.example/", client_id = "a", client_secret_env = "A" }'


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "needs either url or command"),
        ('url = "https://x.example/"\ncommand = ["x"]', "needs either url or command"),
        ("command = []", "mcp.s.command"),
        ('url = "ftp://x.example/"', "must begin with https:// or http://"),
        ('url = "https://me:secret@x.example/"', "has a login"),
        ('url = "https://169.254.169.254/mcp"', "is an address at which nothing is asked"),
        ('url = "https://x.example/#a"', "has a #fragment"),
        ('url = "http://x.example/"', "http:// sends secrets in plain text"),
        (f'url = "https://x.example/"\n{_OAUTH.replace("https", "http")}', "http:// sends secrets in plain text"),
        ('command = ["x"]\nheaders.A = { env = "A" }', "a command has no headers"),
        ('url = "https://x.example/"\nenv = ["A"]', "env is for a command"),
        (f'url = "https://x.example/"\n{_OAUTH}\nheaders.authorization = {{ env = "A" }}', "take one"),
        ('url = "https://x.example/"\nheaders.Mcp-Session-Id = { env = "A" }', "is of the request itself"),
        ('url = "https://x.example/"\nheaders.A = "secret"', "mcp.s.headers.A"),
        ('url = "https://x.example/"\nheaders.A = { env = "not a name" }', "mcp.s.headers.A.env"),
        ('url = "https://x.example/"\ntimeout = 0', "mcp.s.timeout"),
        ('url = "https://x.example/"\nconnect_timeout = 60', "mcp.s.connect_timeout"),
        ('url = "https://x.example/"\ntools.a.idempotant = true', "did you mean 'idempotent'?"),
    ],
)
def test_a_table_that_does_not_fit_is_a_sentence(table: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    path.write_text(f"[mcp.s]\n{table}")
    with pytest.raises(ConfigurationError) as refused:
        declared_sources(path)
    assert said in str(refused.value)
    assert "secret@" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://x.example/mcp", "http://127.0.0.1:1/mcp", "http://localhost/mcp", "http://[::1]:80/mcp"]
)
def test_a_server_is_asked_by_tls_or_on_this_machine(url: str) -> None:
    assert Section(url=url).url == url
    assert Section(url="http://x.example/", plain_http=True).url


async def test_check_says_what_a_server_is_and_what_it_offers(tmp_path: Path) -> None:
    offered = [tool("a"), tool("b"), tool("no", inputSchema={"type": "string"})]
    async with serving(McpServer(listed=offered, modern=False)) as server:
        (finding,) = [each async for each in KIND.check(settings(), {"s": Section(url=server.url)})]
    assert finding.ok
    assert finding.source == "mcp.s"
    assert finding.tools == ("s__a", "s__b")
    assert finding.found == ("old 1, an older revision: 2 of 3 tools. 'no' is left out: its parameters are no object.")


async def test_check_says_how_a_changed_tool_is_accepted() -> None:
    async with serving(McpServer(listed=[tool("a"), tool("b")])) as server:
        section = Section(url=server.url, pin=True, pins={"a": digest_of(tool("a")), "b": "other"})
        (finding,) = [each async for each in KIND.check(settings(), {"s": section})]
    assert not finding.ok
    assert finding.tools == ("s__a",)
    assert finding.advice.endswith(f'accept it under [mcp.s.pins]: "b" = "{digest_of(tool("b"))}"')


@pytest.mark.parametrize(
    ("table", "found", "advice"),
    [
        ('url = "http://127.0.0.1:1/"', "no connection: Connection refused", "See that it runs"),
        ('command = ["/nowhere"]', "does not start: No such file or directory", "See that it runs"),
        (
            f'command = ["{sys.executable}", "-c", "import sys; sys.exit(\'no license\')"]',
            "its process has ended",
            "Its last words: no license",
        ),
        ('url = "http://127.0.0.1:1/"\nheaders.A = { env = "NOT_SET" }', "NOT_SET is not set", "Set the variable"),
    ],
    ids=["no server", "no program", "a program that ends", "no secret"],
)
def test_check_says_what_to_do(
    table: str,
    found: str,
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "tools.toml"
    path.write_text(f"[mcp.s]\n{table}")
    monkeypatch.setenv("PALAVER_TOOL_SOURCES", str(path))
    monkeypatch.setenv("PALAVER_TOOL_LISTS", str(tmp_path / "lists"))
    settings.cache_clear()
    assert tool_sources.main(["--json"]) == 1
    settings.cache_clear()
    (said,) = json.loads(capsys.readouterr().out)["data"]
    assert found in said["found"]
    assert advice in said["advice"]


@pytest.mark.slow
def test_it_costs_nobody_who_has_no_such_table(tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    program = """
import sys
from pathlib import Path
from palaver.config.settings import Settings
from workers.sources import sources_of
sources_of(Settings(tool_sources=Path(sys.argv[1])))
print(*sys.modules)
"""
    for text, there in [("", False), (_TABLE, True)]:
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", program, str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        modules = done.stdout.split()
        assert ("features.mcp_client.source" in modules) is there
        assert ("aiohttp" in modules) is there
        assert not {"mcp", "httpx2", "anyio", "jsonschema_rs"}.intersection(modules)


_TABLE = '[mcp.s]\nurl = "https://x.example/"'
