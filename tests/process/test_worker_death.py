"""SIGKILL of whatever works on a run: another worker goes on, and nothing is done twice that must not be."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.process.cluster import LEASE, Cluster
from tests.process.one_more import one_more
from tests.processes import gone
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_another_worker_makes_the_answer_anew(cluster: Cluster) -> None:
    cluster.start("worker")
    run_id = cluster.submit("say-40+rate-20")
    cluster.saw(run_id, "message.delta")
    cluster.kill("worker", cluster.holder(run_id))
    lost = cluster.saw(run_id, "step.lost", step="1")
    shown = [event.at for event in cluster.events(run_id) if event.type == "message.delta" and event.seq < lost.seq]
    assert (lost.at - shown[-1]).total_seconds() < 3 * LEASE, "the lease did not run out"
    cluster.saw(run_id, "message.discarded", step="1", attempt=1)
    cluster.saw(run_id, "step.started", step="1", attempt=2)
    run = cluster.ended(run_id)
    assert run.status == "completed"
    assert run.output == " ".join(f"w{i}" for i in range(1, 41))
    assert len(cluster.model_calls(run_id)) == 2


def test_a_run_whose_only_worker_died_goes_on_with_the_next_one(cluster: Cluster) -> None:
    run_id = cluster.submit("say-20+rate-20")
    cluster.saw(run_id, "message.delta")
    cluster.kill("worker")
    cluster.start("worker")
    assert cluster.ended(run_id).status == "completed"


@pytest.mark.skipif(ON_CLUSTER, reason="about the commands of one server: test_cluster_deaths has a cluster's")
def test_a_fleet_that_was_killed_goes_on_at_the_second_look_of_the_next_worker(cluster: Cluster) -> None:
    """The first look is taken before the worker loads its work, the second one when it is ready: no more are needed.
    Leases last for longer than the test."""
    for role in ("worker", "tools"):
        cluster.kill(role)
    with ExitStack() as stack:
        fleet = [
            stack.enter_context(one_more(cluster, role, name=f"killed-{number}", PALAVER_LEASE_SECONDS="600"))
            for number, role in enumerate(("worker", "worker", "tools"))
        ]
        streams = [cluster.submit("say-400+rate-20") for _ in range(6)]
        tool = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record"])
        for run_id in streams:
            cluster.saw(run_id, "message.delta")
        eventually(lambda: cluster.tool_starts(tool))
        dead = {cluster.tries(run_id)[-1] for run_id in streams}
        for child in fleet:
            child.kill(signal.SIGKILL)
        sent = stack.enter_context(commands_of(cluster))
        stack.enter_context(one_more(cluster, "worker"))
        for run_id in streams:
            cluster.saw(run_id, "step.lost", step="1")
            cluster.saw(run_id, "step.started", step="1", attempt=2)
        result = cluster.saw(tool, "tool.finished").data
        assert result["error"]["class"] == "tool_interrupted"
        for run_id in cluster.submitted:
            cluster.cancel(run_id)
            cluster.ended(run_id)
        until_taken = list(takewhile(lambda each: not is_good_bye(each, dead), sent))
        assert len(until_taken) < len(sent), "nobody removed a report of the dead"
    looks = [each for each in until_taken if each.startswith("PUBSUB NUMSUB") and any(name in each for name in dead)]
    assert len(looks) <= 2, looks
    assert len(cluster.tool_starts(tool)) == 1


@contextmanager
def commands_of(cluster: Cluster) -> Iterator[list[str]]:
    """The commands that Redis is sent by anybody in the block, in order."""
    sent: list[str] = []
    with cluster.redis() as server, server.monitor() as monitor:

        def listen() -> None:
            with suppress(redis.RedisError, OSError, ValueError):
                sent.extend(each["command"] for each in monitor.listen())

        threading.Thread(target=listen, daemon=True).start()
        yield sent


def is_good_bye(command: str, workers: set[str]) -> bool:
    """Whether it removes the report of one of these workers."""
    return command.startswith("ZREM") and command.rpartition(" ")[2] in workers


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_at_any_moment_loses_nothing(cluster: Cluster, seed: int) -> None:
    cluster.start("worker")
    runs = [cluster.submit("tool-3+rate-200", tools=["calculator", "record"]) for _ in range(10)]
    moment = random.Random(seed).random() * 0.3
    until = time.monotonic() + moment
    eventually(lambda: time.monotonic() >= until, every=0.001)
    cluster.kill("worker")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"


@pytest.mark.skipif(ON_CLUSTER, reason="about the connections of one server: test_cluster_deaths has a cluster's")
def test_a_worker_is_dead_when_its_process_is_and_not_when_it_was_cut_off(cluster: Cluster) -> None:
    """Its leases are longer than any test: what goes on within one is because somebody saw the death."""
    with cluster.redis() as server:
        others = listeners(server)
        with one_more(cluster, "worker", PALAVER_LEASE_SECONDS="600") as worker:
            held = eventually(lambda: held_by(cluster, worker.pid))
            for _ in range(100):
                for each in eventually(lambda: listeners(server) - others):
                    server.client_kill_filter(_id=each)
            assert len(cluster.tries(held)) == 1
    cluster.saw(held, "message.delta", attempt=2)
    for run_id in cluster.submitted:
        cluster.cancel(run_id)


def held_by(cluster: Cluster, worker: int | None) -> str:
    """A long run in the hands of this process; nothing if another one has taken it."""
    run_id = cluster.submit("say-4000+rate-20")
    cluster.saw(run_id, "message.delta")
    return run_id if cluster.tries(run_id)[-1].endswith(f"/{worker}") else ""


def listeners(server: redis.Redis) -> set[str]:
    """The connections on which processes hear of cancels and the like, by id; Celery's own use patterns."""
    found: Any = server.client_list(_type="pubsub")
    return {each["id"] for each in found if each["psub"] == "0"}


def test_a_tool_in_a_killed_child_is_not_started_again(cluster: Cluster) -> None:
    cluster.expect_traceback("WorkerLostError")
    cluster.kill("tools")
    with one_more(cluster, "tools", PALAVER_LEASE_SECONDS="600"):
        run_id = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record"])
        (start,) = eventually(lambda: cluster.tool_starts(run_id))
        os.kill(start["pid"], signal.SIGKILL)
        # Its worker says so: the lease would last for minutes.
        assert cluster.ended(run_id).status == "completed"
    assert len(cluster.tool_starts(run_id)) == 1
    result = cluster.saw(run_id, "tool.finished").data
    assert result["error"]["class"] == "tool_interrupted"
    assert "may or may not have taken effect" in result["message"]["content"]


def test_a_tool_in_a_killed_worker_is_not_started_again(cluster: Cluster) -> None:
    run_id = cluster.submit("parallel-2", '[[args {"seconds": 30}]]', tools=["record"])
    eventually(lambda: len(cluster.tool_starts(run_id)) == 2)
    cluster.kill("tools")
    run = cluster.ended(run_id)
    assert run.status == "completed"
    assert len(cluster.tool_starts(run_id)) == 2
    results = [event.data["error"]["class"] for event in cluster.events(run_id) if event.type == "tool.finished"]
    assert results == ["tool_interrupted"] * 2


def test_an_idempotent_tool_is_started_again(cluster: Cluster) -> None:
    gate = cluster.gate()
    run_id = cluster.submit("tool-1", gate.text, tools=["record_idempotent"])
    eventually(lambda: cluster.tool_starts(run_id))
    cluster.kill("tools")
    gate.open()
    cluster.start("tools")
    run = cluster.ended(run_id)
    assert run.status == "completed"
    assert len(cluster.tool_starts(run_id)) == 2
    assert not cluster.saw(run_id, "tool.finished").data["message"].get("is_error", False)


def test_children_whose_worker_was_killed_do_not_live_on(cluster: Cluster) -> None:
    """As the kernel's out-of-memory killer does it: the main process only."""
    # Of a child that starts as its worker dies.
    cluster.expect_traceback("BrokenPipeError")
    children = cluster.all_children()
    run_id = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record_idempotent"])
    eventually(lambda: cluster.tool_starts(run_id))
    os.kill(cluster.stack.pids("tools")[0], signal.SIGKILL)
    eventually(lambda: all(gone(pid) for pid in children))
    cluster.cancel(run_id)


def test_a_worker_that_was_frozen_cannot_write_any_more(cluster: Cluster) -> None:
    """Paused for longer than its lease, then thawed with a whole answer in its socket: the answer is refused."""
    cluster.start("worker")
    run_id = cluster.submit("say-30+rate-20")
    cluster.saw(run_id, "message.delta")
    frozen = cluster.stack.kill("worker", cluster.holder(run_id), signal.SIGSTOP)
    cluster.saw(run_id, "message.delta", attempt=2)
    os.killpg(frozen, signal.SIGCONT)
    run = cluster.ended(run_id)
    assert (run.status, run.output) == ("completed", " ".join(f"w{i}" for i in range(1, 31)))
    assert cluster.outcomes(run_id)[-1] == "answered"
    assert cluster.ended(cluster.submit("echo", conversation_id=run.conversation_id)).status == "completed"


def test_a_tool_that_was_frozen_in_the_middle_cannot_be_answered_any_more(cluster: Cluster) -> None:
    """Its call was answered as interrupted, which says that it may have taken effect. Thawed, it has; nobody hears."""
    cluster.start("tools")
    gate = cluster.gate()
    run_id = cluster.submit("tool-1", gate.text, tools=["record"])
    (start,) = eventually(lambda: cluster.tool_starts(run_id))
    number = next(number for number in range(2) if start["pid"] in cluster.children_of("tools", number))
    cluster.stack.kill("tools", number, signal.SIGSTOP)
    gate.open()
    result = cluster.saw(run_id, "tool.finished").data
    assert result["error"]["class"] == "tool_interrupted"
    assert "may or may not have taken effect" in result["message"]["content"]
    run = cluster.ended(run_id)
    before = cluster.events(run_id)
    cluster.stack.kill("tools", number, signal.SIGCONT)
    eventually(lambda: "another worker goes on" in cluster.new_log("tools"))
    assert run.status == "completed"
    assert cluster.events(run_id) == before
    assert len(cluster.tool_starts(run_id)) == 1


def test_a_tool_that_was_frozen_before_it_began_does_not_begin(cluster: Cluster) -> None:
    """Its worker asks again whether it may, as the lease may be over: by now the call has been answered."""
    cluster.kill("tools")
    with one_more(cluster, "tools", PALAVER_FAILPOINTS="tool.starting=stop@1") as frozen:
        run_id = cluster.submit("tool-1", tools=["record"])
        child = eventually(lambda: stopped_child(frozen.pid))
        assert cluster.ended(run_id).status == "completed"
        assert child is not None
        os.kill(child, signal.SIGCONT)
        eventually(lambda: "another worker goes on" in frozen.output)
        assert not cluster.tool_starts(run_id)


def stopped_child(worker: int) -> int | None:
    """The process id of a child that was stopped."""
    children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
    return next((int(pid) for pid in children if Path(f"/proc/{pid}/stat").read_text().split()[2] == "T"), None)
