"""`palaver api`, `worker`, `tools` and `flower` by hand: what each becomes, and what it says when it cannot."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.readiness import accepts, answers_ok
from features.stack.redis_server import RedisServer
from palaver.config.roles import ROLES
from palaver.processes.process_tree import below
from tests.pages import ROOT
from tests.process.warm import cold_starts
from tests.processes import gone
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

WORKERS: Final = ("worker", "tools")
PROGRAM: Final = {
    "api": "-m api ",
    "worker": "-m workers -q -A workers.app worker -Q model ",
    "tools": "-m workers -q -A workers.app worker -Q tools ",
    "flower": "-m workers -A workers.broker.celery_app flower ",
}
"""What `ps` shows of each."""
BODY: Final = {"agent": {"model": "open/small"}, "input": "hello"}


def refused(role: str, *options: str, interpreter: tuple[str, ...] = (), **environment: str) -> tuple[int, str]:
    """The exit code, and what it says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    done = subprocess.run(
        [sys.executable, *interpreter, "-m", "palaver.cli", role, *options],
        cwd=ROOT,
        env={**clean, "PALAVER_FLOWER_OPEN": "true", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def turned_away(folder: Path, role: str, *options: str, **environment: str) -> tuple[int | None, str]:
    """The same of a command that is forked, and all that it writes: one for each reason would import for a second."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    child = ChildCommand(
        role,
        [sys.executable, "-m", "palaver.cli", role, *options],
        environment={**clean, "PALAVER_FLOWER_OPEN": "true", **environment},
        log_path=folder / "log",
        ready=lambda child: False,
    )
    child.start()
    child.reap(time.monotonic() + 60)
    assert "Traceback" not in child.output
    return child.exit_code, child.output


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


def test_a_password_in_the_place_of_a_port_is_not_said() -> None:
    status, said = refused("worker", PALAVER_REDIS_URL="redis://palaver:hunter2")
    assert (status, "hunter2" in said, said.count("\n")) == (78, False, 1)


@pytest.mark.parametrize("role", ROLES)
def test_an_option_that_there_is_not(role: str, redis_url: str, tmp_path: Path) -> None:
    status, said = turned_away(tmp_path, role, "--nope", PALAVER_REDIS_URL=redis_url)
    assert status == 2
    assert "nope" in said.splitlines()[-1]
    assert len(said.splitlines()) <= 4, "not all that it could do"


def test_flower_wants_a_login(redis_url: str) -> None:
    status, said = refused("flower", PALAVER_REDIS_URL=redis_url, PALAVER_FLOWER_OPEN="")
    assert status == 78
    assert said.startswith("palaver: Flower: there is no login: set FLOWER_BASIC_AUTH=user:password, or")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("role", "variable"), [("api", "PALAVER_API_PORT"), ("flower", "PALAVER_FLOWER_PORT")])
def test_a_port_in_use(role: str, variable: str, redis_url: str, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        status, said = turned_away(tmp_path, role, f"--port={port}", PALAVER_REDIS_URL=redis_url)
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
def test_a_port_that_is_none(role: str, option: str, variable: str, said: str, redis_url: str, tmp_path: Path) -> None:
    options = [option] if option else []
    ports = {"PALAVER_API_PORT": variable, "PALAVER_FLOWER_PORT": variable}
    status, told = turned_away(tmp_path, role, *options, PALAVER_REDIS_URL=redis_url, **ports)
    assert (status, told) == (78, f"palaver: {said} is no port, which is a number from 1 to 65535\n")


@pytest.mark.parametrize("role", ROLES)
def test_help_asks_for_nothing_that_is_set(role: str) -> None:
    wrong = {"PALAVER_REDIS_URL_FILE": "/run/secrets/nowhere", "PALAVER_FLOWER_PORT": "http"}
    assert refused(role, "--help", interpreter=(), **wrong) == (0, "")


@pytest.mark.parametrize(
    ("role", "options", "said"),
    [
        (
            "tools",
            ["-Q", "GPU"],
            "takes from no queue 'GPU': a tool names it, as in @tool(queue='gpu'), or it is 'tools'",
        ),
        ("worker", ["-Q", "gpu"], "takes from no queue 'gpu', but from 'model'"),
        ("tools", ["-B"], ": unrecognized arguments: -B; `palaver tools --help` lists its options"),
        ("worker", ["-O", "fair"], ": unrecognized arguments: -O fair; `palaver worker --help` lists its options"),
        (
            "worker",
            ["-c", "many"],
            ": argument -c/--concurrency: 'many' is no number from 1 on; `palaver worker --help`",
        ),
    ],
)
def test_an_option_that_does_no_good_is_refused_in_a_sentence(
    role: str, options: list[str], said: str, tmp_path: Path
) -> None:
    status, told = turned_away(tmp_path, role, *options, PALAVER_REDIS_URL="redis://127.0.0.1:1/0")
    assert status == 2
    assert told.startswith("palaver: palaver ")
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("role", WORKERS)
def test_the_help_of_a_worker_is_its_own(role: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "palaver.cli", role, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert f"palaver {role}" in shown
    assert "--concurrency" in shown
    assert "celery" not in shown.lower()
    assert "--beat" not in shown


@contextmanager
def begun(role: str, redis_url: str, folder: Path, *options: str) -> Iterator[ChildCommand]:
    """The command, from here to the end of the block; an API has its address as `PALAVER_URL`."""
    ports = {"PALAVER_API_PORT": str(free_port()), "PALAVER_FLOWER_PORT": str(free_port())}
    table = folder / "providers.toml"
    table.write_text('[providers.open]\nbase_url = "http://127.0.0.1:1/v1"\n')
    asked = {"api": "PALAVER_API_PORT", "flower": "PALAVER_FLOWER_PORT"}
    url = f"http://{HOST}:{ports[asked[role]]}" if role in asked else ""

    def ready(child: ChildCommand) -> bool:
        return answers_ok(f"{url}/{'readyz' if role == 'api' else 'healthcheck'}") if url else " ready." in child.output

    child = ChildCommand(
        role,
        [sys.executable, "-m", "palaver.cli", role, *options],
        environment={
            **os.environ,
            "PALAVER_REDIS_URL": redis_url,
            "PALAVER_PROVIDERS": str(table),
            "PALAVER_FLOWER_OPEN": "true",
            "PALAVER_URL": url,
            "PYTHONUNBUFFERED": "1",
            **ports,
        },
        log_path=folder / "log",
        ready=ready,
    )
    with cold_starts():
        child.start()
    try:
        yield child
    finally:
        child.kill(signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("role", ROLES)
def test_the_process_is_the_program_and_ends_by_a_signal(role: str, redis_url: str, tmp_path: Path) -> None:
    options = ("-l", "WARNING", "-l", "INFO") if role in WORKERS else ()
    with begun(role, redis_url, tmp_path, *options) as child:
        child.wait_until_ready(time.monotonic() + 60)
        line = Path(f"/proc/{child.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        assert PROGRAM[role] in line
        started = below(child.pid)
        child.kill(signal.SIGTERM)
        child.reap(time.monotonic() + 60)
        assert child.exit_code == (-signal.SIGTERM if role == "api" else 0)
        assert all(gone(pid) for pid in started)


@pytest.mark.parametrize("role", [role for role in ROLES if role != "api"])
def test_without_a_redis_it_says_so_and_waits_for_it(role: str, tmp_path: Path) -> None:
    port = free_port()
    away = f"palaver: waiting for Redis at {HOST}:{port} (Connection refused): start it, or set PALAVER_REDIS_URL"
    with begun(role, f"redis://{HOST}:{port}/0", tmp_path) as child:
        eventually(lambda: away in child.output)
        with RedisServer(port=port):
            child.wait_until_ready(time.monotonic() + 60)
        assert child.output.count("waiting for Redis") == 1


@pytest.mark.parametrize(("ending", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_who_waits_for_a_redis_ends_when_told_to(ending: signal.Signals, status: int, tmp_path: Path) -> None:
    with begun("worker", f"redis://{HOST}:{free_port()}/0", tmp_path) as child:
        eventually(lambda: "waiting for Redis" in child.output)
        child.kill(ending)
        child.reap(time.monotonic() + 60)
        assert (child.exit_code, child.output.count("\n")) == (status, 1)


def test_without_a_redis_the_api_says_that_it_is_not_ready_until_there_is_one(tmp_path: Path) -> None:
    """Replicas that start while Redis is away for a moment must not be started again and again, later and later."""
    port = free_port()
    with begun("api", f"redis://{HOST}:{port}/0", tmp_path) as child:
        with httpx.Client(base_url=child.environment["PALAVER_URL"], trust_env=False, timeout=30) as client:
            eventually(lambda: accepts(client.base_url.port or 0))
            assert client.get("/healthz").status_code == 200
            unready, refused = client.get("/readyz"), client.post("/v1/runs", json=BODY)
            assert (unready.status_code, unready.json()["detail"]) == (503, "The store does not answer.")
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
            with RedisServer(port=port):
                child.wait_until_ready(time.monotonic() + 60)
                assert client.post("/v1/runs", json=BODY).status_code == 202
        assert f"no Redis at {HOST}:{port} (Connection refused): until there is one, /readyz" in child.output
