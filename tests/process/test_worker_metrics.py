"""The histograms of real workers, asked for as Prometheus asks."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from features.stack.child import ChildCommand
from features.stack.plan import COMMANDS
from features.stack.ports import HOST, free_port
from palaver.config.exits import EX_UNAVAILABLE
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

MODEL, TOOLS = 0, 1
"""How far the port of a worker is from the first."""


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("measured")
    with Cluster(folder, environment={"PALAVER_METRICS_PORT": str(port)}) as cluster:
        yield cluster


def _count(port: int, name: str, **labels: str) -> float:
    answer = httpx.get(f"http://{HOST}:{port}/metrics", trust_env=False, timeout=PATIENCE)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return sum(
        sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == f"{name}_count" and labels.items() <= sample.labels.items()
    )


def test_each_worker_tells_what_it_has_seen(measured: Cluster, port: int) -> None:
    runs = [measured.submit("tool-2", tools=["record"]) for _ in range(3)]
    assert {measured.ended(run_id).status for run_id in runs} == {"completed"}
    step = "palaver_step_duration_seconds"
    eventually(lambda: _count(port + MODEL, step, kind="model", outcome="done") == 9)
    eventually(lambda: _count(port + TOOLS, step, kind="tool", outcome="done") == 6)
    assert _count(port + TOOLS, "palaver_claim_wait_seconds") == 6
    assert _count(port + MODEL, "palaver_time_to_first_token_seconds", provider="fake") == 9
    assert _count(port + MODEL, "gen_ai_client_operation_duration_seconds", provider="fake", model="tool-2") == 9
    assert _count(port + MODEL, "gen_ai_client_token_usage", model="tool-2", type="input") == 9


def test_what_a_killed_child_saw_is_told_by_its_parent(measured: Cluster, port: int) -> None:
    measured.expect_traceback("WorkerLostError")
    step = "palaver_step_duration_seconds"
    before = _count(port + TOOLS, step)
    measured.ended(measured.submit("parallel-3", tools=["record"]))
    for pid in measured.children_of("tools"):
        os.kill(pid, signal.SIGKILL)
    measured.ended(measured.submit("tool-1", tools=["record"]))
    eventually(lambda: _count(port + TOOLS, step) == before + 4)


def test_a_cancel_is_timed(measured: Cluster, port: int) -> None:
    run_id = measured.submit("say-200+rate-20")
    measured.saw(run_id, "message.delta")
    measured.cancel(run_id)
    eventually(lambda: _count(port + MODEL, "palaver_cancel_stop_seconds") == 1)


def test_nothing_else_is_there_and_slow_askers_hold_nobody_up_for_long(measured: Cluster, port: int) -> None:
    assert httpx.get(f"http://{HOST}:{port}/", trust_env=False, timeout=PATIENCE).status_code == 404
    assert httpx.post(f"http://{HOST}:{port}/metrics", trust_env=False, timeout=PATIENCE).status_code == 501
    with socket.create_connection((HOST, port)) as silent:
        silent.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert httpx.get(f"http://{HOST}:{port}/metrics", trust_env=False, timeout=20).status_code == 200


@pytest.mark.parametrize("role", ["worker", "tools"])
def test_a_port_that_is_taken_is_said_in_one_sentence(measured: Cluster, port: int, tmp_path: Path, role: str) -> None:
    environment = {**measured.children(role)[0].environment, "PALAVER_METRICS_PORT": str(port)}
    refused = ChildCommand(
        role, COMMANDS[role], environment=environment, log_path=tmp_path / "log", ready=lambda child: False
    )
    refused.start()
    refused.reap(time.monotonic() + 60)
    assert refused.exit_code == EX_UNAVAILABLE
    said = f"palaver: cannot serve metrics on {HOST}:{port} (Address already in use): each worker on a machine needs"
    assert said in refused.output
    assert "Traceback" not in refused.output
