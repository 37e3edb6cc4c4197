"""Kills of workers at random moments, as fast as they start again: nothing is lost, doubled or started twice.

The checks behind every test do the counting (checks.py): logs whole, every model call derivable from the log, no tool
that must not be started twice started twice. Here is only the killing.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest

from deploy.child import Child
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

WORKERS = {"worker": 3, "tools": 2}
MODELS = ("tool-10+use-each+rate-400", "steps-2-1-3-1-2-1+use-each+rate-400")


def test_random_kills(cluster: Cluster) -> None:
    kill_at_random(cluster, kills=12, runs=30)


@pytest.mark.chaos
def test_two_hundred_random_kills(cluster: Cluster) -> None:
    kill_at_random(cluster, kills=int(os.environ.get("PALAVER_CHAOS_KILLS", "200")), runs=100)


def kill_at_random(cluster: Cluster, *, kills: int, runs: int) -> None:
    """Keep `runs` runs under way until so many kills have hit a worker; every run completes."""
    seed = int(os.environ.get("PALAVER_CHAOS_SEED", "0")) or random.randrange(1, 1 << 30)
    print(f"PALAVER_CHAOS_SEED={seed}")
    chance = random.Random(seed)
    cluster.expect_traceback("WorkerLostError")
    for name, count in WORKERS.items():
        for _ in range(count - 1):
            cluster.start(name)
    victims = [child for name in WORKERS for child in cluster.children(name)]
    going = {submit(cluster, chance) for _ in range(runs)}
    for pause in pauses(chance, kills):
        victim = chance.choice([child for child in victims if child.running])
        os.killpg(victim.pid, 9) if chance.random() < 0.8 else kill_one_child(victim, chance)
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline:
            for child in victims:
                if not child.running:
                    child.start()
            going -= {run_id for run_id in going if cluster.run(run_id).status.terminal}
            going |= {submit(cluster, chance) for _ in range(runs - len(going))}
    print(f"{len(cluster.submitted)} runs, {sum(child.running for child in victims)} workers at the end")
    for child in victims:
        if not child.running:
            child.start()
    for run_id in cluster.submitted:
        assert cluster.ended(run_id, within=60).status == "completed"


def submit(cluster: Cluster, chance: random.Random) -> str:
    """A run of ten tool turns, or of ten calls in six: calculator inline, the others in a child of a tools worker."""
    return cluster.submit(chance.choice(MODELS), tools=["calculator", "record", "record_idempotent"])


def kill_one_child(worker: Child, chance: random.Random) -> None:
    """One process of a tools worker; the model worker is one process."""
    with open(f"/proc/{worker.pid}/task/{worker.pid}/children") as listed:
        children = [int(pid) for pid in listed.read().split()]
    os.kill(chance.choice(children or [worker.pid]), 9)


def pauses(chance: random.Random, kills: int) -> Iterator[float]:
    """Seconds between two kills: a worker needs 2 s to start, and three of five should work at any time."""
    return (chance.uniform(0.2, 1.6) for _ in range(kills))
