"""`palaver providers`: the program that the command becomes, with the environment of a worker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.store import Store
from tests.model_server import ModelServer
from tests.process.typed import palaver

pytestmark = [pytest.mark.process, pytest.mark.long]

KEY = "sk-of-a-provider-0123456789"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer.running() as server:
        yield server


def run(tmp_path: Path, table: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "providers.toml"
    path.write_text(table)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    environment |= {"PALAVER_PROVIDERS": str(path), "KEY_OF_X": KEY, **more}
    return palaver("providers", *arguments, environment=environment)


def test_the_command_lists_and_checks_and_tells_no_key(server: ModelServer, tmp_path: Path) -> None:
    place = server.base_url.replace("http://", "http://me:pass-word-of-x@")
    table = f"""
[providers.good]
base_url = "{server.base_url}"
api_key_env = "KEY_OF_X"
models = ["echo"]
[providers.login]
base_url = "{place}"
[providers.openai]
api_key_env = "KEY_OF_Y"
"""
    listed = run(tmp_path, table)
    assert listed.returncode == 0
    assert "KEY_OF_X (set)" in listed.stdout
    assert "KEY_OF_Y (NOT SET)" in listed.stdout
    assert "PALAVER_REDIS_URL is not set" in listed.stderr
    rows = json.loads(run(tmp_path, table, "--json").stdout)["data"]
    assert [(row["name"], row["base_url"], row["key_set"]) for row in rows] == [
        ("good", server.base_url, True),
        ("login", server.base_url, None),
        ("openai", "https://api.openai.com/v1", False),
    ]
    told = run(tmp_path, table, "check")
    assert told.returncode == 1
    assert "good    ok     It answers." in told.stdout
    assert "what to do: set KEY_OF_Y" in told.stdout
    one, same = (
        run(tmp_path, table, *arguments)
        for arguments in (("check", "--model", "good/echo", "--json"), ("--json", "check", "good", "--model", "echo"))
    )
    assert (one.returncode, one.stdout) == (0, same.stdout)
    assert [each["provider"] for each in json.loads(one.stdout)["data"]] == ["good"]
    misspelt = run(tmp_path, table, "check", "god")
    assert (misspelt.returncode, misspelt.stdout) == (2, "")
    assert misspelt.stderr == "palaver: there is no provider 'god'; did you mean 'good'?\n"
    everything = "".join(each.stdout + each.stderr for each in (listed, told, one))
    assert KEY not in everything
    assert "pass-word-of-x" not in everything


def test_the_command_says_that_there_is_no_table(tmp_path: Path) -> None:
    told = run(tmp_path, "[providers]", "check")
    assert (told.returncode, told.stdout) == (78, "")
    assert told.stderr.startswith("palaver: PALAVER_PROVIDERS: no provider")


def test_the_command_tells_who_is_left_alone(server: ModelServer, tmp_path: Path) -> None:
    async def cool_down(url: str) -> None:
        async with Store.connect(Settings(redis_url=url)) as store:
            await store.providers.cool_down("busy", 120)

    table = f'[providers.busy]\nbase_url = "{server.base_url}"\n[providers.free]\nbase_url = "{server.base_url}"\n'
    with RedisServer() as redis:
        asyncio.run(cool_down(redis.url))
        rows = json.loads(run(tmp_path, table, "--json", PALAVER_REDIS_URL=redis.url).stdout)["data"]
        listed = run(tmp_path, table, PALAVER_REDIS_URL=redis.url)
    assert {row["name"]: row["cooling_until"] is not None for row in rows} == {"busy": True, "free": False}
    assert (listed.returncode, listed.stderr) == (0, "")
    away = run(tmp_path, table, PALAVER_REDIS_URL="redis://127.0.0.1:1/0")
    assert (away.returncode, len(away.stdout.splitlines())) == (0, 3)
    assert away.stderr.startswith("palaver: whether they are left alone is not known: ")
