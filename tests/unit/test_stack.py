"""The dev stack, with a real Redis, the real model server and stand-ins for the processes of the Procfile."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import redis

from deploy.child import ROOT
from deploy.errors import StackError
from deploy.plan import read_procfile
from deploy.ports import VARIABLES, Ports
from deploy.stack import PROCFILE, Stack
from deploy.supervision import LONGEST_DELAY, Supervisor
from palaver.testing import eventually
from palaver.testing.ports import HOST
from tests.processes import gone

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
print(json.dumps({"child": child.pid, "path": os.environ["PATH"], "seen": seen}))
print("worker@here ready.")
time.sleep(600)
"""


@dataclass
class WorkerRecord:
    """What a stand-in worker says at its start."""

    child: int
    path: str
    seen: dict[str, str]


@pytest.fixture
def procfile(tmp_path: Path) -> Path:
    """An API that is ready and a worker with a child of its own."""
    (tmp_path / "api.py").write_text(API)
    (tmp_path / "worker.py").write_text(WORKER)
    path = tmp_path / "Procfile"
    path.write_text(
        f"# a comment\napi: python {tmp_path}/api.py\nworker: python {tmp_path}/worker.py ${{NOT_SET:-x}}\n"
    )
    return path


@pytest.fixture
def stack(tmp_path: Path, procfile: Path) -> Iterator[Stack]:
    with Stack(tmp_path / "data", procfile=procfile, processes={"worker": 2}) as running:
        yield running


def pids_of(stack: Stack) -> list[int]:
    """Every process of the stack, and the worker's children."""
    own = [pid for name in ("redis", "model_server", "api", "worker") for pid in stack.pids(name)]
    return own + [said(stack, index).child for index in range(len(stack.pids("worker")))]


def said(stack: Stack, index: int = 0) -> WorkerRecord:
    """What a stand-in worker wrote about itself."""
    return WorkerRecord(**json.loads(stack.log("worker", index).splitlines()[0]))


def test_everything_runs_and_knows_where_everything_is(stack: Stack) -> None:
    assert {name: len(stack.pids(name)) for name in ("redis", "model_server", "api", "worker")} == {
        "redis": 1,
        "model_server": 1,
        "api": 1,
        "worker": 2,
    }
    assert list(stack.processes) == ["redis", "model_server-1", "api-1", "worker-1", "worker-2"]
    with redis.Redis.from_url(stack.redis_url) as client:
        assert client.ping() is True
    assert httpx.get(f"{stack.url}/readyz").status_code == 200

    seen = said(stack).seen
    assert seen["PALAVER_REDIS_URL"] == stack.redis_url
    assert seen["PALAVER_DATA_DIR"] == str(stack.data_dir)
    assert seen["PALAVER_API_PORT"] == str(stack.ports.api)
    providers = tomllib.loads(Path(seen["PALAVER_PROVIDERS"]).read_text())["providers"]
    assert providers["fake"]["base_url"] == f"{stack.model_url}/v1"
    assert said(stack).path.startswith(str(Path(sys.executable).parent))


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
    (tmp_path / "Procfile").write_text("worker: echo no such module; exit 3\n")
    stack = Stack(tmp_path / "data", procfile=tmp_path / "Procfile")
    with pytest.raises(StackError, match=r"(?s)worker-1 exited with .*\.log:\n    no such module"):
        stack.up()
    assert pids_of(stack) == []


def test_a_process_that_is_not_ready_in_time_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("worker: sh -c 'echo still loading; sleep 600'\n")
    with (
        pytest.raises(StackError, match=r"(?s)worker-1 was not ready in time.*still loading"),
        Stack(tmp_path / "data", procfile=tmp_path / "Procfile", deadline=4.0),
    ):
        pass


def test_a_port_in_use_is_named_with_the_variable_to_set(tmp_path: Path, procfile: Path) -> None:
    ports = Ports.free()
    with (
        socket.create_server((HOST, ports.api)),
        pytest.raises(StackError, match=f"port {ports.api} for api is in use.*PALAVER_API_PORT"),
        Stack(tmp_path / "data", procfile=procfile, ports=ports),
    ):
        pass


def test_a_data_directory_has_one_stack(tmp_path: Path) -> None:
    (tmp_path / "Procfile").touch()
    with Stack(tmp_path / "data", procfile=tmp_path / "Procfile") as first:
        with (
            pytest.raises(StackError, match=r"another stack runs in .*PALAVER_DATA_DIR"),
            Stack(tmp_path / "data", procfile=tmp_path / "Procfile"),
        ):
            pass
        assert len(first.pids("redis")) == 1


def test_a_count_for_a_line_that_is_not_there_is_refused(tmp_path: Path, procfile: Path) -> None:
    with pytest.raises(StackError, match="no line for wroker"):
        Stack(tmp_path / "data", procfile=procfile, processes={"wroker": 2})


def test_a_given_redis_is_used_in_place_of_an_embedded_one(stack: Stack, tmp_path: Path, procfile: Path) -> None:
    with Stack(tmp_path / "other", procfile=procfile, redis_url=stack.redis_url) as other:
        assert other.pids("redis") == []
        assert said(other).seen["PALAVER_REDIS_URL"] == stack.redis_url


@dataclass
class Up:
    """`deploy.stack up` as a process."""

    process: subprocess.Popen[str]
    data_dir: Path

    def read_until(self, text: str) -> list[str]:
        """The lines it prints up to the one with `text`."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if text in line:
                return lines
        raise AssertionError(f"{text!r} never came:\n{''.join(lines)}")

    def pids(self, lines: list[str]) -> list[int]:
        """The process ids in `lines`, and those of the stand-in workers' children."""
        own = [int(line.rpartition("(process ")[2].rstrip(")\n")) for line in lines if "(process " in line]
        workers = [log.read_text().splitlines()[0] for log in (self.data_dir / "logs").glob("worker-*.log")]
        return own + [json.loads(line)["child"] for line in workers]


@pytest.fixture
def up(tmp_path: Path, procfile: Path) -> Iterator[Up]:
    ports = {VARIABLES[name]: str(port) for name, port in asdict(Ports.free()).items()}
    places = {"PALAVER_DATA_DIR": str(tmp_path / "data"), "PALAVER_REDIS_URL": "", "PALAVER_PROVIDERS": ""}
    with subprocess.Popen(
        [sys.executable, "-m", "deploy.stack", "up", "--procfile", procfile],
        cwd=ROOT,
        env={**os.environ, **ports, **places},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield Up(process, tmp_path / "data")
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_up_runs_until_it_is_told_to_stop_and_leaves_nothing(up: Up, ending: signal.Signals) -> None:
    lines = up.read_until("Ctrl-C")
    assert any("http://127.0.0.1:" in line for line in lines)
    up.process.send_signal(ending)
    up.process.send_signal(signal.SIGTERM)
    up.read_until("stopped")
    assert up.process.wait(10) == 0
    pids = up.pids(lines)
    assert len(pids) == 5
    assert [pid for pid in pids if not gone(pid)] == []


def test_up_starts_again_what_has_ended(up: Up) -> None:
    redis_pid = up.pids(up.read_until("Ctrl-C"))[0]
    os.kill(redis_pid, signal.SIGKILL)
    up.read_until("redis has ended; starting it again in 1 s")
    log = up.data_dir / "redis" / "redis.log"
    eventually(lambda: log.read_text().count("Ready to accept") == 2, why="redis runs again")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_stack_that_is_killed_takes_its_processes_along(up: Up) -> None:
    *pids, child = up.pids(up.read_until("Ctrl-C"))
    assert len(pids) == 4
    try:
        up.process.kill()
        eventually(lambda: all(gone(pid) for pid in pids), why="no process of the stack is left")
    finally:
        # A worker sees to its own children; Celery's pool does, the stand-in does not.
        os.kill(child, signal.SIGKILL)


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


@pytest.mark.parametrize("text", ["http", "0", "65536", "-1"])
def test_a_port_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(StackError, match="PALAVER_FLOWER_PORT must be a port number"):
        Ports.from_environment({"PALAVER_FLOWER_PORT": text})


def test_ports_come_from_the_environment_or_are_the_documented_ones() -> None:
    ports = Ports.from_environment({"PALAVER_API_PORT": "8081", "PALAVER_REDIS_PORT": ""})
    assert ports == Ports(api=8081, flower=5555, redis=6390, model_server=9101)


def test_the_procfile_lists_what_an_operator_runs() -> None:
    lines = read_procfile(PROCFILE)
    assert list(lines) == ["api", "worker", "tools", "flower"]
    assert "-Q model" in lines["worker"]
    assert "-Q tools" in lines["tools"]


def test_what_it_keeps_is_for_its_owner_only(stack: Stack) -> None:
    with redis.Redis.from_url(stack.redis_url) as server:
        server.set("said", "hello")
    assert stack.data_dir.stat().st_mode & 0o777 == 0o700
    kept = [path for path in (stack.data_dir / "redis").rglob("*") if path.name != "redis.log"]
    assert any(path.suffix == ".aof" for path in kept)
    assert not [path for path in kept if path.stat().st_mode & 0o077]
