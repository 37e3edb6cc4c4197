"""A worker that is connected and gets nothing: it notices, connects to its broker anew, and keeps what it works on."""

from __future__ import annotations

import signal
import time

import pytest

from features.stack.child import ChildCommand
from tests.process.broker import ON_RABBITMQ
from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.waiting import eventually

pytestmark = pytest.mark.process

NOTICED = "nothing came for"
"""RabbitMQ counts what it has sent and nobody has read among what is worked on: there heartbeats tell, or the next
question that has an answer reads what is there."""


def stall(worker: ChildCommand) -> None:
    """It is connected, and nobody reads what comes: it knows of no reason to connect anew."""
    worker.kill(signal.SIGUSR2)
    eventually(lambda: "reads no more" in worker.output)


@pytest.mark.parametrize("line", ["worker", "tools"])
def test_a_stalled_worker_connects_again(cluster: Cluster, line: str) -> None:
    cluster.kill(line)
    with one_more(cluster, line, app="tests.process.stalled_app", PALAVER_STALLED_AFTER="1") as worker:
        # Only who has begun to listen can stop.
        assert cluster.ended(cluster.submit("tool-1", tools=["record"])).status == "completed"
        stall(worker)
        run_id = cluster.submit("tool-1", tools=["record"])
        assert cluster.ended(run_id).status == "completed"
        assert ON_RABBITMQ or NOTICED in worker.output
        assert worker.running


def test_a_stalled_worker_keeps_what_it_works_on(cluster: Cluster) -> None:
    cluster.kill("worker")
    with one_more(cluster, "worker", app="tests.process.stalled_app", PALAVER_STALLED_AFTER="1") as worker:
        long = cluster.submit("say-800+rate-20" if ON_RABBITMQ else "say-100+rate-20")
        cluster.saw(long, "message.delta")
        stall(worker)
        short = cluster.submit("echo")
        assert cluster.ended(short).status == "completed"
        assert ON_RABBITMQ or NOTICED in worker.output
        assert cluster.ended(long).status == "completed"
        assert len(cluster.model_calls(long)) == 1


@pytest.mark.chaos
def test_an_idle_worker_and_a_full_one_are_not_stalled(cluster: Cluster) -> None:
    """No messages, or no room for them."""
    cluster.kill("tools")
    with one_more(cluster, "tools", PALAVER_STALLED_AFTER="1") as worker:
        until = time.monotonic() + 2
        eventually(lambda: time.monotonic() >= until)
        runs = [cluster.submit("parallel-6", '[[args {"seconds": 2}]]', tools=["record"]) for _ in range(2)]
        for run_id in runs:
            assert cluster.ended(run_id).status == "completed"
        assert NOTICED not in worker.output


@pytest.mark.skipif(ON_RABBITMQ, reason="asks Redis who waits for messages")
def test_workers_whose_connections_are_closed_go_on(cluster: Cluster) -> None:
    """An operator's CLIENT KILL, a proxy's idle timeout: the broker's end closes the connection that waits."""
    with cluster.deliveries() as server:
        for _ in range(3):
            waiting = cluster.takers()
            assert waiting
            for client in waiting:
                server.client_kill_filter(_id=client)
            assert cluster.ended(cluster.submit("tool-1", tools=["record"])).status == "completed"


def test_workers_whose_server_paused_go_on(cluster: Cluster) -> None:
    with cluster.redis() as server:
        server.client_pause(1500, all=True)
    assert cluster.ended(cluster.submit("tool-1", tools=["record"])).status == "completed"
