"""A backlog, and everything killed in the middle of it: all of it ends, and the broker is not flooded meanwhile."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from palaver.delivery.deliveries import QUEUE_NAMES
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.cluster import LEASE, Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process

EVERYTHING = ("worker", "tools", "api", "redis")
DOUBLES = 2 * 16
"""Messages of steps that have another one in the broker, at most: what sweepers send again, of each of two queues."""
TASK = re.compile(rb'"id": "(run_[^"]*):\d+"')


def test_a_backlog_outlives_the_death_of_everything(cluster: Cluster) -> None:
    work_off(cluster, 150, kills=1)


@pytest.mark.chaos
def test_a_long_backlog_outlives_the_death_of_everything(cluster: Cluster) -> None:
    work_off(cluster, scaled(1000), kills=3)


def work_off(cluster: Cluster, runs: int, *, kills: int) -> None:
    """So many runs of two model calls wait before a worker comes; while they are worked off everything is killed."""
    seed, chance = seeded()
    before = len(cluster.model_calls())
    cluster.kill("worker")
    cluster.kill("tools")
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda _: cluster.submit("tool-1", tools=["calculator"]), range(runs)))
    assert cluster.ask(lambda store: store.capacity.runs()) == runs
    for name in ("tools", "worker", "worker"):
        cluster.start(name)
    doubled = 0
    for kill in range(kills):
        until = runs * (kills - kill) // (kills + 1) + chance.randrange(runs // 20 + 1)
        doubled = max(doubled, wait(cluster, until))
        for name in EVERYTHING:
            while cluster.stack.pids(name):
                cluster.kill(name)
        for name in reversed(EVERYTHING):
            cluster.start(name)
        cluster.start("worker")
    doubled = max(doubled, wait(cluster, 0))
    ends = Counter(cluster.ended(run_id, within=60).status.value for run_id in ids)
    made = len(cluster.model_calls()) - before
    lost = sum(event.type == "step.lost" for run_id in ids for event in cluster.events(run_id))
    counts = {"runs": runs, "kills of everything": kills, "doubled deliveries": doubled, "model calls": made}
    print(counts, f"needed {2 * runs}, tries lost {lost}")
    record("backlog", seed=seed, counts=counts)
    assert ends == {"completed": runs}
    assert doubled <= DOUBLES
    assert made <= 2 * runs + lost


def test_workers_that_were_all_frozen_for_longer_than_a_lease_do_nothing_twice(cluster: Cluster) -> None:
    """All leases have run out at once. Whoever lives renews its own before any is taken away."""
    cluster.start("worker")
    runs = [cluster.submit(f"say-{int(20 * (LEASE + 4))}+rate-20") for _ in range(30)]
    for run_id in runs:
        cluster.saw(run_id, "message.delta")
    frozen = [cluster.stack.kill("worker", index, signal.SIGSTOP) for index in range(2)]
    until = time.monotonic() + LEASE + 1
    eventually(lambda: time.monotonic() >= until)
    for pid in frozen:
        os.killpg(pid, signal.SIGCONT)
    assert wait(cluster, 0) <= DOUBLES
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.model_calls(run_id)) == 1


def wait(cluster: Cluster, left: int) -> int:
    """Until no more than so many entries are due; the most doubled deliveries that the broker had meanwhile."""
    most = 0
    with cluster.redis() as broker:

        def look() -> bool:
            nonlocal most
            most = max(most, doubles(broker))
            return broker.zcard("{p00}:due") <= left

        eventually(look, within=600, every=0.1)
    return most


def doubles(broker: redis.Redis) -> int:
    """Messages of steps that have another one in the broker."""
    messages = [message for queue in QUEUE_NAMES for message in broker.lrange(queue, 0, -1)]
    steps = [found[1] for message in messages if isinstance(message, bytes) and (found := TASK.search(message))]
    assert len(steps) == len(messages), "messages look different now"
    return len(steps) - len(set(steps))
