"""The stack, with a real Redis, the real model server and stand-ins for the processes of the roles."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import redis

from features.stack.errors import StackError
from features.stack.plan import COMMANDS, Plan
from features.stack.ports import HOST, Ports
from features.stack.stack import Stack
from features.stack.supervision import LONGEST_DELAY, Supervisor
from palaver.config.exits import EX_CONFIG
from palaver.config.roles import ROLES
from tests.pages import ROOT
from tests.processes import gone
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

API = """
import http.server, os

class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(os.environ["PALAVER_API_PORT"])), Ready).serve_forever()
"""

WORKER = """
import json, os, signal, subprocess, sys, time

def drain(signum, frame):
    print("drained")
    sys.exit(0)

signal.signal(signal.SIGTERM, drain)
child = subprocess.Popen(["sleep", "600"])
seen = {name: value for name, value in os.environ.items() if name.startswith("PALAVER_")}
print(json.dumps({"child": child.pid, "seen": seen}))
print("worker@here ready.")
time.sleep(600)
"""


Commands = Mapping[str, Sequence[str]]


@dataclass
class WorkerRecord:
    """What a stand-in worker says at its start."""

    child: int
    seen: dict[str, str]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """An API that is ready and a worker with a child of its own."""
    return {"api": [sys.executable, "-c", API], "worker": [sys.executable, "-c", WORKER]}


@pytest.fixture
def stack(tmp_path: Path, commands: Commands) -> Iterator[Stack]:
    with Stack(tmp_path / "data", commands=commands, processes={"worker": 2}) as running:
        yield running


def pids_of(stack: Stack) -> list[int]:
    """Every process of the stack, and the worker's children."""
    own = [pid for name in ("redis", "fake_provider", "api", "worker") for pid in stack.pids(name)]
    return own + [said(stack, index).child for index in range(len(stack.pids("worker")))]


def said(stack: Stack, index: int = 0) -> WorkerRecord:
    """What a stand-in worker wrote about itself."""
    return WorkerRecord(**json.loads(stack.log("worker", index).splitlines()[0]))


def test_everything_runs_and_knows_where_everything_is(stack: Stack) -> None:
    assert {name: len(stack.pids(name)) for name in ("redis", "fake_provider", "api", "worker")} == {
        "redis": 1,
        "fake_provider": 1,
        "api": 1,
        "worker": 2,
    }
    assert list(stack.processes) == ["redis", "fake_provider-1", "api-1", "worker-1", "worker-2"]
    with redis.Redis.from_url(stack.redis_url) as client:
        assert client.ping() is True
    assert httpx.get(f"{stack.url}/readyz", timeout=PATIENCE).status_code == 200

    seen = said(stack).seen
    assert seen["PALAVER_REDIS_URL"] == stack.redis_url
    assert seen["PALAVER_DATA_DIR"] == str(stack.data_dir)
    assert seen["PALAVER_API_PORT"] == str(stack.ports.api)
    providers = tomllib.loads(Path(seen["PALAVER_PROVIDERS"]).read_text())["providers"]
    assert providers["fake"]["base_url"] == f"{stack.model_url}/v1"


def test_a_killed_worker_is_gone_with_its_children_and_can_be_started_again(stack: Stack) -> None:
    first, second = stack.pids("worker")
    child = said(stack, 1).child

    assert stack.kill("worker", 1) == second
    assert gone(second)
    eventually(lambda: gone(child), why="the killed worker's child is gone")
    assert stack.pids("worker") == [first]

    third = stack.start("worker")
    assert stack.pids("worker") == [first, third]
    assert list(stack.processes)[-1] == "worker-2"


def test_one_more_can_be_started(stack: Stack) -> None:
    stack.start("worker")
    assert len(stack.pids("worker")) == 3


def test_a_terminated_worker_drains(stack: Stack) -> None:
    stack.kill("worker", 0, signal.SIGTERM)
    eventually(lambda: "drained" in stack.log("worker"), why="the worker drained")
    eventually(lambda: len(stack.pids("worker")) == 1, why="the worker ended")


def test_a_paused_worker_and_a_paused_redis_still_count_as_running_and_can_be_stopped(stack: Stack) -> None:
    pids = pids_of(stack)
    stack.kill("worker", 0, signal.SIGSTOP)
    stack.kill("redis", signal=signal.SIGSTOP)
    assert len(stack.pids("worker")) == 2
    assert len(stack.pids("redis")) == 1
    stack.kill("redis", signal=signal.SIGCONT)
    stack.stop()
    assert all(gone(pid) for pid in pids)


def test_redis_is_killed_and_started_on_the_same_port(stack: Stack) -> None:
    killed = stack.kill("redis")
    assert stack.pids("redis") == []
    assert stack.start("redis") != killed
    with redis.Redis.from_url(stack.redis_url) as client:
        assert client.ping() is True


def test_stop_leaves_no_process(stack: Stack) -> None:
    pids = pids_of(stack)
    stack.stop()
    assert [pid for pid in pids if not gone(pid)] == []


def test_what_does_not_run_cannot_be_killed(stack: Stack) -> None:
    with pytest.raises(StackError, match="worker number 2 does not run"):
        stack.kill("worker", 2)


def test_a_process_that_exits_at_start_shows_its_log_and_stops_the_rest(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data", commands={"worker": ["sh", "-c", "echo no such module; exit 3"]})
    with pytest.raises(StackError, match=r"(?s)worker-1 exited with .*\.log:\n    no such module"):
        stack.up()
    assert pids_of(stack) == []


def test_a_process_that_is_not_ready_in_time_shows_its_log(tmp_path: Path) -> None:
    worker = ["sh", "-c", "echo still loading; sleep 600"]
    with (
        pytest.raises(StackError, match=r"(?s)worker-1 was not ready in time.*still loading"),
        Stack(tmp_path / "data", commands={"worker": worker}, deadline=4.0),
    ):
        pass


def test_a_port_in_use_is_named_with_the_variable_to_set(tmp_path: Path, commands: Commands) -> None:
    ports = Ports.free()
    with (
        socket.create_server((HOST, ports.api)),
        pytest.raises(StackError, match=f"port {ports.api} for api is in use.*PALAVER_API_PORT"),
        Stack(tmp_path / "data", commands=commands, ports=ports),
    ):
        pass


def test_a_data_directory_has_one_stack(tmp_path: Path) -> None:
    with Stack(tmp_path / "data", commands={}) as first:
        with (
            pytest.raises(StackError, match=r"another stack runs in .*PALAVER_DATA_DIR"),
            Stack(tmp_path / "data", commands={}),
        ):
            pass
        assert len(first.pids("redis")) == 1


def test_without_the_feature_that_plays_the_model_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.stack.plan.features", dict)
    with pytest.raises(StackError, match="there is no feature fake_provider"):
        Stack(tmp_path).up()


def test_a_count_for_what_has_no_command_is_refused(tmp_path: Path, commands: Commands) -> None:
    with pytest.raises(StackError, match="no command for wroker"):
        Stack(tmp_path / "data", commands=commands, processes={"wroker": 2})


def test_a_given_redis_is_used_in_place_of_an_embedded_one(stack: Stack, tmp_path: Path, commands: Commands) -> None:
    with Stack(tmp_path / "other", commands=commands, redis_url=stack.redis_url) as other:
        assert other.pids("redis") == []
        assert said(other).seen["PALAVER_REDIS_URL"] == stack.redis_url


def test_the_address_of_a_redis_may_stand_in_a_file(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    file = tmp_path / "redis_url"
    file.write_text(f"{stack.redis_url}\n")
    monkeypatch.setenv("PALAVER_REDIS_URL_FILE", str(file))
    monkeypatch.delenv("PALAVER_REDIS_URL", raising=False)
    assert Stack.from_environment(os.environ, print).redis_url == stack.redis_url
    with Stack(tmp_path / "other", commands=commands, redis_url=stack.redis_url) as other:
        seen = said(other).seen
    assert seen["PALAVER_REDIS_URL"] == stack.redis_url
    assert "PALAVER_REDIS_URL_FILE" not in seen


def test_it_listens_for_who_started_it_whatever_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_HOST", "0.0.0.0")
    monkeypatch.setenv("PALAVER_ALLOWED_HOSTS", "palaver.example.com")
    (tmp_path / "logs").mkdir()
    child = Plan(tmp_path, Ports(), COMMANDS, {}).child("api", 1, "redis://127.0.0.1:6390/0")
    assert child.environment["PALAVER_HOST"] == HOST
    assert child.environment["PALAVER_ALLOWED_HOSTS"] == f"palaver.example.com,{HOST}", "what it shows must work"


@dataclass
class Crashing:
    """A process that never lives to the next look."""

    running: bool = False
    starts: int = 0

    def start(self) -> None:
        self.starts += 1
        if self.starts == 2:
            raise RuntimeError("no port")


def test_what_keeps_crashing_is_started_later_and_later() -> None:
    process, said = Crashing(), list[str]()
    supervisor = Supervisor({"worker-1": process}, said.append, now=0.0)
    starts = []
    for now in range(120):
        before = process.starts
        supervisor.look(float(now))
        if process.starts > before:
            starts.append(now)
    assert [later - earlier for earlier, later in pairwise(starts)] == [3, 5, 9, 17, 31, 31]
    assert "worker-1 could not be started: no port" in said
    assert f"starting it again in {LONGEST_DELAY:g} s" in said[-1]


def test_the_delay_is_forgotten_once_a_process_has_lived_a_minute() -> None:
    process, said = Crashing(), list[str]()
    supervisor = Supervisor({"worker-1": process}, said.append, now=0.0)
    for now in (1.0, 2.0, 3.0):
        supervisor.look(now)
    supervisor.look(100.0)
    process.running = True
    supervisor.look(105.0)
    process.running = False
    supervisor.look(200.0)
    assert said[-1] == "worker-1 has ended; starting it again in 1 s"


@pytest.mark.parametrize("text", ["http", "0", "65536", "-1", "٨٠", "9" * 5000])
def test_a_port_that_is_none_is_refused_by_name(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Ports.from_environment({"PALAVER_FLOWER_PORT": text})
    assert ended.value.code == EX_CONFIG
    assert f"PALAVER_FLOWER_PORT: '{text[:80]}' is no port" in capfd.readouterr().err


def test_ports_come_from_the_environment_or_are_the_documented_ones() -> None:
    ports = Ports.from_environment({"PALAVER_API_PORT": "8081", "PALAVER_REDIS_PORT": ""})
    assert ports == Ports(api=8081, flower=5555, redis=6390, fake_provider=9101)


def test_the_procfile_has_the_command_of_each_role() -> None:
    lines = [line for line in (ROOT / "Procfile").read_text().splitlines() if not line.startswith("#")]
    assert lines == [f"{role}: palaver {role}" for role in ROLES]
    assert {role: command[-1] for role, command in COMMANDS.items()} == {role: role for role in ROLES}


def test_what_it_keeps_is_for_its_owner_only(stack: Stack) -> None:
    with redis.Redis.from_url(stack.redis_url) as server:
        server.set("said", "hello")
    assert stack.data_dir.stat().st_mode & 0o777 == 0o700
    kept = [path for path in (stack.data_dir / "redis").rglob("*") if path.name != "redis.log"]
    assert any(path.suffix == ".aof" for path in kept)
    assert not [path for path in kept if path.stat().st_mode & 0o077]
