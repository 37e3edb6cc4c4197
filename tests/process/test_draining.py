"""SIGTERM, as a deployment sends it: short steps finish, long ones go to somebody else at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from tests.chaos.report import record
from tests.pages import ROOT
from tests.process.cluster import GRACE, Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process
_INTERRUPTED = """
import workers.app
from celery.signals import worker_shutting_down
with worker_shutting_down.lock:
    worker_shutting_down.send("a worker")
"""
_LATE = """
import os, signal
import workers.app

class Late:
    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.{number}):
        kill(me, number)

signal.signal(signal.{number}, lambda *_: None)
late = Late()
"""
"""A signal once the interpreter has let go of its handlers, and of modules."""


def test_a_short_answer_is_finished(cluster: Cluster) -> None:
    run_id = cluster.submit("say-8+rate-20")
    cluster.saw(run_id, "message.delta")
    leaving = cluster.terminate("worker")
    assert cluster.ended(run_id).status == "completed"
    assert len(cluster.model_calls(run_id)) == 1
    eventually(lambda: not leaving.running)
    assert leaving.exit_code == 0


def test_a_long_answer_goes_to_another_worker_at_once(cluster: Cluster) -> None:
    cluster.start("worker")
    run_id = cluster.submit("say-60+rate-20")
    cluster.saw(run_id, "message.delta")
    leaving = cluster.terminate("worker", cluster.holder(run_id))
    eventually(lambda: len(set(cluster.tries(run_id))) == 2)
    assert cluster.ended(run_id).status == "completed"
    eventually(lambda: not leaving.running)
    assert leaving.exit_code == 0
    # Nobody waited for the lease to run out.
    assert not [event for event in cluster.events(run_id) if event.type == "step.lost"]


def test_a_draining_worker_begins_nothing(cluster: Cluster) -> None:
    busy = cluster.submit("say-60+rate-20")
    cluster.saw(busy, "message.delta")
    (first,) = cluster.tries(busy)
    leaving = cluster.terminate("worker")
    eventually(lambda: "Warm shutdown" in leaving.output)
    runs = [cluster.submit("echo") for _ in range(10)]
    cluster.start("worker")
    for run_id in runs:
        cluster.ended(run_id)
        assert first not in cluster.tries(run_id)
    eventually(lambda: not leaving.running)


def test_a_long_tool_does_not_hold_up_a_deployment(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record"])
    eventually(lambda: cluster.tool_starts(run_id))
    leaving = cluster.terminate("tools")
    # The tool would have taken longer, and so would a worker that knows nothing of its grace.
    assert cluster.ended(run_id).status == "completed"
    assert cluster.saw(run_id, "tool.finished").data["error"]["class"] == "tool_interrupted"
    eventually(lambda: not leaving.running)
    assert leaving.exit_code == 0
    assert len(cluster.tool_starts(run_id)) == 1


def test_a_short_tool_is_finished(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", '[[args {"seconds": 0.3}]]', tools=["record"])
    eventually(lambda: cluster.tool_starts(run_id))
    leaving = cluster.terminate("tools")
    assert cluster.ended(run_id).status == "completed"
    assert not cluster.saw(run_id, "tool.finished").data["message"].get("is_error", False)
    eventually(lambda: not leaving.running)


def test_rolling_deployments_cost_no_model_call(cluster: Cluster) -> None:
    """Three rolls under load, with steps that are shorter than the grace."""
    runs: list[str] = []
    for _ in range(3):
        runs += [cluster.submit("tool-3+rate-50", tools=["calculator", "record"]) for _ in range(10)]
        cluster.start("worker")
        leaving = cluster.terminate("worker")
        eventually(lambda leaving=leaving: not leaving.running)  # type: ignore[misc]
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.model_calls(run_id)) == 4


def test_a_kill_within_the_grace_is_a_loss_like_any_other(cluster: Cluster) -> None:
    cluster.start("worker")
    run_id = cluster.submit("say-40+rate-20")
    cluster.saw(run_id, "message.delta")
    leaving = cluster.terminate("worker", cluster.holder(run_id))
    eventually(lambda: "Warm shutdown" in leaving.output)
    leaving.kill(signal.SIGKILL)
    cluster.saw(run_id, "step.lost")
    assert cluster.ended(run_id).status == "completed"


def test_leases_are_handed_back_when_the_grace_ends_and_claimed_at_once(cluster: Cluster) -> None:
    """By Redis's clock. Milliseconds on a quiet machine; the bounds are for a busy one."""
    cluster.start("worker")
    runs = [cluster.submit("say-600+rate-20") for _ in range(8)]
    for run_id in runs:
        cluster.saw(run_id, "message.delta")
    holder = cluster.tries(runs[0])
    held = [run_id for run_id in runs if cluster.tries(run_id) == holder]
    told = datetime.now(UTC)
    leaving = cluster.terminate("worker", cluster.holder(runs[0]))
    backs = [cluster.saw(run_id, "message.discarded").at for run_id in held]
    claims = [eventually(lambda run_id=run_id: begun(cluster, run_id)[1]) for run_id in held]  # type: ignore[misc]
    gaps = sorted((claim - back).total_seconds() for back, claim in zip(backs, claims, strict=True))
    print(f"handed back after {(max(backs) - told).total_seconds():.3f} s; claimed after {gaps}")
    record("hand-backs", seed=0, counts={"hand-backs": len(gaps)}, seconds=gaps)
    assert (min(backs) - told).total_seconds() >= GRACE
    assert (max(backs) - told).total_seconds() < GRACE + 1
    assert gaps[-1] < 1
    for run_id in runs:
        cluster.cancel(run_id)
    eventually(lambda: not leaving.running)
    assert leaving.exit_code == 0


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_second_signal_within_the_grace_loses_nothing(cluster: Cluster, again: signal.Signals) -> None:
    """An impatient operator, or a terminal that sends it to the whole group."""
    cluster.start("worker")
    run_id = cluster.submit("say-60+rate-20")
    cluster.saw(run_id, "message.delta")
    leaving = cluster.terminate("worker", cluster.holder(run_id))
    eventually(lambda: "Warm shutdown" in leaving.output)
    leaving.kill(again)
    assert cluster.ended(run_id).status == "completed"
    assert not [event for event in cluster.events(run_id) if event.type == "step.lost"]
    eventually(lambda: not leaving.running)


def test_a_second_signal_to_a_tools_worker_loses_nothing(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", '[[args {"seconds": 0.7}]]', tools=["record"])
    eventually(lambda: cluster.tool_starts(run_id))
    leaving = cluster.terminate("tools")
    eventually(lambda: "Warm shutdown" in leaving.output)
    leaving.terminate()
    assert cluster.ended(run_id).status == "completed"
    assert not cluster.saw(run_id, "tool.finished").data["message"].get("is_error", False)
    eventually(lambda: not leaving.running)


def test_a_burst_of_signals_ends_a_worker_as_one_does(cluster: Cluster) -> None:
    """Each can interrupt the handler of the one before it anywhere, also while it holds a lock of Celery's."""
    cluster.start("worker")
    run_id = cluster.submit("say-10+rate-20")
    cluster.saw(run_id, "message.delta")
    leaving = cluster.terminate("worker", cluster.holder(run_id))
    for _ in range(300):
        leaving.kill(signal.SIGTERM)
    assert cluster.ended(run_id).status == "completed"
    eventually(lambda: not leaving.running)
    assert leaving.exit_code == 0


def test_a_signal_within_the_handler_of_another_finds_no_lock_taken() -> None:
    """What a burst of signals meets one time in ten."""
    assert status_of(_INTERRUPTED) == 0


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_while_the_interpreter_ends_does_not_end_it(number: str) -> None:
    """What a burst of signals meets on a slow machine."""
    assert status_of(_LATE.format(number=number)) == 0


def status_of(program: str) -> int:
    """How an interpreter exits that runs this."""
    environment = {**os.environ, "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0"}
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, timeout=300).returncode


def begun(cluster: Cluster, run_id: str) -> list[datetime]:
    """When a worker began one of the run's steps."""
    return [event.at for event in cluster.events(run_id) if event.type == "step.started"]
