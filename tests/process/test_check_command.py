"""`palaver check`: the program that the command becomes, with the environment of a process of a server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.check import logins
from features.stack.redis_server import RedisServer
from tests.pages import ROOT
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.long]


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")} | more
    command = [sys.executable, "-m", "palaver.cli", "check", *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT
    )


def test_the_table_of_the_page_and_its_json(tmp_path: Path) -> None:
    users = logins.write_users(tmp_path / "users.acl")
    options = {"aclfile": str(users), "maxmemory-policy": "allkeys-lru"}
    with RedisServer(options=options, login=logins.admin()) as server:
        url = logins.url_of("palaver-worker", server.port)
        shown = run(PALAVER_REDIS_URL=url)
        told = run("--json", "--role", "api", PALAVER_REDIS_URL=url, PALAVER_BROKER_URL="amqp://127.0.0.1:1")
    assert (shown.returncode, shown.stderr) == (1, "")
    page = (ROOT / "docs/how-to/redis.md").read_text()
    (table,) = re.findall(r"```\n(PLACE .*?)```", page, re.DOTALL)
    assert re.sub(r"(Valkey|Redis) [\d.]+", "SERVER", shown.stdout) == re.sub(r"Valkey [\d.]+", "SERVER", table)
    found = {each["check"]: each for each in json.loads(told.stdout)["data"]}
    assert told.returncode == 1
    assert found["eviction"]["level"] == "warning"
    assert found["eviction"]["advice"] == "set `maxmemory-policy noeviction` there"
    assert "rename" in found["rights"]["found"], "a worker may not do all that the API has to"


def test_all_is_well_or_nobody_answers() -> None:
    with RedisServer() as server:
        well = run(PALAVER_REDIS_URL=server.url)
        url = server.url
        lost = run(
            PALAVER_REDIS_URL=url, PALAVER_OIDC_ISSUER="http://127.0.0.1:1/realm", PALAVER_OIDC_AUDIENCE="palaver"
        )
    assert (well.returncode, well.stderr) == (0, "")
    assert (lost.returncode, lost.stderr) == (1, "")
    assert re.search(r"issuer +keys +ERROR +http://127\.0\.0\.1:1/realm/\S+ cannot be asked: ConnectError", lost.stdout)
    assert "What to do: see to PALAVER_OIDC_ISSUER" in lost.stdout
    away = run(PALAVER_REDIS_URL=url)
    assert away.returncode == 1
    assert re.search(r"store +answer +ERROR +ConnectionError", away.stdout)
    assert run().returncode == 78


def test_the_hosts_of_agents_own_servers_are_looked_up() -> None:
    with RedisServer() as server:
        well = run(PALAVER_REDIS_URL=server.url, PALAVER_INLINE_MCP_HOSTS="localhost:9,*.customers.example")
        lost = run(PALAVER_REDIS_URL=server.url, PALAVER_INLINE_MCP_HOSTS="127.0.0.1:9,nobody.invalid")
    assert well.returncode == 0
    assert re.search(r"mcp +hosts +ok +agents' own servers: localhost:9, \*\.customers\.example; without", well.stdout)
    assert lost.returncode == 1
    assert re.search(r"mcp +hosts +WARNING +unknown: nobody\.invalid$", lost.stdout, re.MULTILINE)
    assert "What to do: correct PALAVER_INLINE_MCP_HOSTS" in lost.stdout


def test_rules_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[rules.limits]\nmax_step = 5\n")
    refused = run(PALAVER_REDIS_URL="redis://127.0.0.1:1/0", PALAVER_POLICY=str(policy))
    assert (refused.returncode, refused.stdout) == (78, "")
    assert "rules.limits.max_step: is no key here; did you mean 'max_steps'?" in refused.stderr
    assert "Traceback" not in refused.stderr
