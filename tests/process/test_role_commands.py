"""`palaver api`, `worker`, `tools` and `flower` by hand: what each becomes, and what it says when it cannot."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from palaver.process_tree import below
from palaver.roles import ROLES
from palaver.stack.child import Child
from palaver.stack.readiness import answers_ok
from palaver.testing.ports import HOST, free_port
from palaver.testing.redis_server import RedisServer
from tests.pages import ROOT
from tests.processes import gone

pytestmark = pytest.mark.process

WORKERS: Final = ("worker", "tools")
PROGRAM: Final = {
    "api": "-m api ",
    "worker": "-m celery -A workers.app worker -Q model ",
    "tools": "-m celery -A workers.app worker -Q tools ",
    "flower": "-m celery -A workers.app flower ",
}
"""What `ps` shows of each."""


def refused(role: str, *options: str, interpreter: tuple[str, ...] = (), **environment: str) -> tuple[int, str]:
    """The exit code, and what it says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    done = subprocess.run(
        [sys.executable, *interpreter, "-m", "palaver.cli", role, *options],
        cwd=ROOT,
        env={**clean, "PALAVER_FLOWER_OPEN": "true", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@pytest.mark.parametrize("role", ROLES)
def test_without_the_extra_it_says_what_to_install(role: str) -> None:
    status, said = refused(role, interpreter=("-S",))
    assert (status, said) == (78, f"palaver: palaver {role} needs celery: pip install 'palaver[server]'\n")


@pytest.mark.parametrize("role", ROLES)
def test_without_a_redis_that_is_named_it_says_what_to_set(role: str) -> None:
    status, said = refused(role)
    assert status == 78
    assert said.startswith("palaver: PALAVER_REDIS_URL is not set.")
    assert said.count("\n") == 1


@pytest.mark.parametrize("role", ROLES)
def test_without_a_redis_that_answers_it_waits_and_says_so_and_ends(role: str) -> None:
    port = free_port()
    away = f"redis://:pass@{HOST}:{port}/0"
    status, said = refused(role, PALAVER_REDIS_URL=away, PALAVER_FLOWER_PORT=str(free_port()))
    waiting, ended = said.splitlines()
    assert (status, waiting.partition(" for ")[0]) == (69, "palaver: waiting up to 10 s")
    assert ended.startswith(f"palaver: no Redis at {HOST}:{port} (Connection refused): start it, or")


def test_a_password_in_the_place_of_a_port_is_not_said() -> None:
    status, said = refused("worker", PALAVER_REDIS_URL="redis://palaver:hunter2")
    assert (status, "hunter2" in said, said.count("\n")) == (78, False, 1)


@pytest.mark.parametrize("role", ROLES)
def test_an_option_that_there_is_not(role: str, redis_url: str) -> None:
    status, said = refused(role, "--nope", PALAVER_REDIS_URL=redis_url)
    assert status == 2
    assert "nope" in said.splitlines()[-1]
    assert len(said.splitlines()) <= 4, "not all that it could do"


def test_flower_wants_a_login(redis_url: str) -> None:
    status, said = refused("flower", PALAVER_REDIS_URL=redis_url, PALAVER_FLOWER_OPEN="")
    assert status == 78
    assert said.startswith("palaver: Flower: there is no login: set FLOWER_BASIC_AUTH=user:password, or")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("role", "variable"), [("api", "PALAVER_API_PORT"), ("flower", "PALAVER_FLOWER_PORT")])
def test_a_port_in_use(role: str, variable: str, redis_url: str) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        status, said = refused(role, f"--port={port}", PALAVER_REDIS_URL=redis_url)
    assert status == 69
    assert said == (
        f"palaver: cannot listen on {HOST}:{port} (Address already in use): stop what listens there, or choose another "
        f"port with --port or {variable}\n"
    )


@pytest.mark.parametrize(
    ("role", "option", "variable", "said"),
    [
        ("api", "", "http", "--port or PALAVER_API_PORT: 'http'"),
        ("api", "--port=99999", "", "--port or PALAVER_API_PORT: '99999'"),
        ("flower", "", "http", "PALAVER_FLOWER_PORT: 'http'"),
        ("flower", "--port=99999", "", "--port: '99999'"),
        ("up", "", "http", "PALAVER_API_PORT: 'http'"),
    ],
)
def test_a_port_that_is_none(role: str, option: str, variable: str, said: str, redis_url: str) -> None:
    options = [option] if option else []
    ports = {"PALAVER_API_PORT": variable, "PALAVER_FLOWER_PORT": variable}
    status, told = refused(role, *options, interpreter=(), PALAVER_REDIS_URL=redis_url, **ports)
    assert (status, told) == (78, f"palaver: {said} is no port, which is a number from 1 to 65535\n")


@pytest.mark.parametrize("role", ROLES)
def test_help_asks_no_redis_also_where_its_address_stands_in_a_file(role: str) -> None:
    assert refused(role, "--help", PALAVER_REDIS_URL_FILE="/run/secrets/nowhere")[0] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("role", ROLES)
def test_the_process_is_the_program_and_ends_by_a_signal(role: str, redis_url: str, tmp_path: Path) -> None:
    ports = {"PALAVER_API_PORT": str(free_port()), "PALAVER_FLOWER_PORT": str(free_port())}
    table = tmp_path / "providers.toml"
    table.write_text('[providers.open]\nbase_url = "http://127.0.0.1:1/v1"\n')
    url = {"api": f"http://{HOST}:{ports['PALAVER_API_PORT']}/readyz"}
    ports["PALAVER_FLOWER_OPEN"] = "true"
    url["flower"] = f"http://{HOST}:{ports['PALAVER_FLOWER_PORT']}/healthcheck"

    def ready(child: Child) -> bool:
        return " ready." in child.output if role in WORKERS else answers_ok(url[role])

    child = Child(
        role,
        [sys.executable, "-m", "palaver.cli", role, *(("-l", "WARNING", "-l", "INFO") if role in WORKERS else ())],
        environment={
            **os.environ,
            "PALAVER_REDIS_URL": redis_url,
            "PALAVER_PROVIDERS": str(table),
            "PYTHONUNBUFFERED": "1",
            **ports,
        },
        log_path=tmp_path / "log",
        ready=ready,
    )
    child.start()
    try:
        child.wait_until_ready(time.monotonic() + 60)
        line = Path(f"/proc/{child.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        assert PROGRAM[role] in line
        started = below(child.pid)
        child.kill(signal.SIGTERM)
        child.reap(time.monotonic() + 60)
        assert child.exit_code == (-signal.SIGTERM if role == "api" else 0)
        assert all(gone(pid) for pid in started)
    finally:
        child.kill(signal.SIGKILL)
