"""A process that could do nothing says why in one sentence, and ends with exit code 78.

What a command becomes is started as users start it; the commands themselves, one for each reason, are forked from a
warm parent (tests/process/warm.py). test_role_commands.py starts one of each as users do.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.redis_server import RedisServer
from palaver.config.exits import EX_CONFIG
from palaver.config.roles import ROLES, command

pytestmark = [pytest.mark.process, pytest.mark.long]

TABLE = """
[providers.open]
base_url = "http://127.0.0.1:1/v1"
"""
KEYED = """
[providers.keyed]
base_url = "http://127.0.0.1:1/v1"
api_key_env = "KEYED_KEY"
"""
LATE = """
import os


class Odd:
    @property
    def __class__(self):
        raise RuntimeError(os.environ["SHOP_DSN"])


odd = Odd()
"""
MODULES = {
    "broken": "raise RuntimeError('no database')",
    "odd": r"raise RuntimeError('odd \udc80')",
    "telling": "import os\nraise RuntimeError(os.environ['SHOP_DSN'])",
    "telling_late": LATE,
    "leaving": "import os\nos._exit(0)",
    "empty": "",
    "doubled": "from palaver import tool\n@tool(name='clock')\ndef other() -> str:\n    'It is not the clock.'\n",
}


def _started(program: list[str], folder: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    """Exit code and output of a process without any other Palaver variable."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    child = ChildCommand(
        program[-1],
        program,
        environment={**inherited, "PYTHONPATH": str(folder), **environment},
        log_path=folder / "log",
        ready=lambda child: False,
    )
    child.start()
    child.reap(time.monotonic() + 60)
    return child.exit_code, child.output


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """Somebody listens there, and nobody answers: what is wrong is found before anybody is asked."""
    with socket.create_server((HOST, 0)) as listener:
        yield f"redis://{HOST}:{listener.getsockname()[1]}/0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables of providers, and modules of tools."""
    for name, text in {"table": TABLE, "keyed": KEYED, "broken": "[providers"}.items():
        (tmp_path / f"{name}.toml").write_text(text)
    for name, text in MODULES.items():
        (tmp_path / f"tools_{name}.py").write_text(text)
    return tmp_path


TOOLS = [
    ("nosuch", "cannot import 'tools_nosuch': ModuleNotFoundError"),
    ("broken", "cannot import 'tools_broken': RuntimeError: no database"),
    ("odd", "cannot import 'tools_odd': RuntimeError: odd "),
    ("empty", "module 'tools_empty' declares no tool"),
    ("doubled", "two tools are named 'clock'"),
]


WORKERS = ("worker", "tools")


@pytest.mark.parametrize(
    ("line", "table", "more", "said"),
    [
        *((line, "table", {"PALAVER_REDIS_URL": ""}, "PALAVER_REDIS_URL is not set") for line in ROLES),
        *((line, "table", {"PALAVER_LEASE_SECONDS": "x"}, "PALAVER_LEASE_SECONDS: ") for line in ROLES),
        *((line, "broken", {}, "broken.toml is not TOML") for line in ("api", *WORKERS)),
        ("worker", "keyed", {}, "the variables with their keys are not set: KEYED_KEY (of keyed)"),
        ("worker", "", {}, "PALAVER_PROVIDERS: a model worker without a provider can do nothing"),
        *(("worker", "table", {"PALAVER_INLINE_TOOLS": f"tools_{name}"}, why) for name, why in TOOLS),
        *(("tools", "table", {"PALAVER_TOOLS": f"tools_{name}"}, why) for name, why in TOOLS),
        ("worker", "table", {"PALAVER_INLINE_TOOLS": "tools_nosuch"}, "PALAVER_INLINE_TOOLS: cannot import"),
        ("tools", "table", {"PALAVER_TOOLS": "tools_nosuch"}, "PALAVER_TOOLS: cannot import"),
        ("tools", "table", {"PALAVER_TOOLS": "tools_leaving"}, "a module ended its process when it was imported"),
        ("api", "table", {"PALAVER_HOST": "0.0.0.0"}, "PALAVER_HOST: 0.0.0.0 is reached from elsewhere"),
        ("worker", "table", {"PALAVER_BROKER_URL": "redis://127.0.0.1:1/0?x=1"}, "a redis:// broker takes no `x`"),
    ],
    ids=lambda each: each if isinstance(each, str) and len(each) < 8 else "",
)
def test_it_says_why_in_one_sentence(
    line: str, table: str, more: dict[str, str], said: str, folder: Path, redis_url: str
) -> None:
    providers = {"PALAVER_PROVIDERS": str(folder / f"{table}.toml")} if table else {}
    environment = {"PALAVER_REDIS_URL": redis_url, **providers, **more}
    code, told = _started([sys.executable, "-m", "palaver.cli", line], folder, environment)
    assert code == EX_CONFIG, told
    assert told.startswith("palaver: ")
    assert said in told
    assert told.count("\n") == 1, told


CLUSTER = {"cluster-enabled": "yes"}  # And a port for its neighbours, which would else be 10,000 above the first.
EVICTING = {"maxmemory-policy": "allkeys-lru"}


@pytest.mark.parametrize(
    ("server", "more", "said"),
    [
        (CLUSTER, {}, "the Redis of the store is one server of a cluster, and its address says nothing of the others"),
        (EVICTING, {"PALAVER_REDIS_CHECK": "fatal"}, "removes keys when its memory is full (maxmemory-policy allkeys"),
    ],
    ids=["cluster", "fatal"],
)
def test_a_redis_that_cannot_be_trusted(server: dict[str, str], more: dict[str, str], said: str, folder: Path) -> None:
    with RedisServer(options={**server, "cluster-port": str(free_port())}) as there:
        for line in ("api", *WORKERS):
            environment = {"PALAVER_REDIS_URL": there.url, "PALAVER_PROVIDERS": str(folder / "table.toml"), **more}
            environment["PALAVER_API_PORT"] = str(free_port())
            code, told = _started([sys.executable, "-m", "palaver.cli", line], folder, environment)
            assert code == EX_CONFIG, told
            assert told.startswith("palaver: ")
            assert said in told
            assert told.count("\n") == 1, told


@pytest.mark.parametrize("line", ROLES)
def test_so_does_the_program_that_a_command_becomes(line: str, folder: Path) -> None:
    code, told = _started(command(line), folder, {})
    assert code == EX_CONFIG, told
    assert told.startswith("palaver: PALAVER_REDIS_URL is not set")
    assert told.count("\n") == 1, told


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("api", {"PALAVER_HOST": "0.0.0.0"}),
        ("worker", {"PALAVER_PROVIDRES": "table.toml"}),
        ("tools", {"PALAVER_TOOLS": "tools_nosuch"}),
    ],
)
def test_what_nobody_reads_is_said_before(line: str, wrong: dict[str, str], folder: Path, redis_url: str) -> None:
    _, told = _started(command(line), folder, {"PALAVER_REDIS_URL": redis_url, "PALAVER_RETENTIN": "5", **wrong})
    assert "PALAVER_RETENTIN is no variable that Palaver reads; did you mean 'PALAVER_RETENTION'?" in told


@pytest.mark.parametrize(
    ("line", "module"), [("worker", "telling"), ("tools", "telling"), ("tools", "telling_late")], ids=str
)
def test_no_secret_is_told_that_a_module_repeats(line: str, module: str, folder: Path, redis_url: str) -> None:
    environment = {
        "PALAVER_REDIS_URL": redis_url,
        "PALAVER_PROVIDERS": str(folder / "table.toml"),
        "PALAVER_TOOLS" if line == "tools" else "PALAVER_INLINE_TOOLS": f"tools_{module}",
        "SHOP_DSN": "postgres://shop:canary-0123456789@db.example/shop",
    }
    code, told = _started(command(line), folder, environment)
    assert code == EX_CONFIG, told
    assert "RuntimeError: postgres://shop:[redacted]@db.example/shop" in told
    assert "canary" not in told


def test_the_api_says_it_as_json_where_log_lines_are(folder: Path, redis_url: str) -> None:
    table = folder / "table.toml"
    table.write_text(f"{TABLE}colour = 'red'\n")
    environment = {"PALAVER_REDIS_URL": redis_url, "PALAVER_LOG_FORMAT": "json", "PALAVER_PROVIDERS": str(table)}
    wrong = {"PALAVER_RETENTIN": "5", "PALAVER_HOST": "0.0.0.0"}
    _, told = _started(command("api"), folder, {**environment, **wrong})
    *warned, refused = map(json.loads, told.splitlines())
    said = [each["message"] for each in warned]
    assert [text.partition(" is no ")[0].rpartition(".")[2] for text in said] == ["colour", "PALAVER_RETENTIN"]
    assert (refused["level"], refused["logger"]) == ("critical", "palaver")
