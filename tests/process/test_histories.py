"""Thousands of clients, several of each run, while API processes, workers and Redis die, or lose their last writes:
there is an order of all that they asked and were told in which every promise is kept (tests/histories)."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from features.stack.ports import HOST
from tests.chaos.failover import Pair
from tests.chaos.power import Power
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.chaos.zygote import Zygote, start_all
from tests.histories.crowd import Crowd
from tests.histories.recorder import Recorder
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

VICTIMS: Final = {"worker": 3, "tools": 2, "api": 1}
AT_ONCE: Final = 12
BETWEEN: Final = (20, 200)
"""Operations between two faults."""


def test_an_order_through_kills(cluster: Cluster, zygotes: Mapping[str, Zygote]) -> None:
    through_kills(cluster, zygotes, runs=30, kills=8)


@pytest.mark.chaos
def test_an_order_through_many_kills(cluster: Cluster, zygotes: Mapping[str, Zygote]) -> None:
    through_kills(cluster, zygotes, runs=scaled(2000), kills=scaled(300))


@pytest.mark.chaos
def test_an_order_on_a_store_that_goes_back_a_second(cluster: Cluster) -> None:
    """Power cuts with `appendfsync everysec`: what was answered in the last second may be lost, promises too."""
    seed, chance = seeded()
    recorder = Recorder((cluster.stack.url,), chance, PATIENCE, rewinds=True)
    with Power(cluster, chance, "everysec").on() as power:

        def cut() -> str:
            begun = time.monotonic()
            recorder.rewound(power.cut(), begun, keeps=False)
            return "power"

        check_order("power cuts", cluster, recorder, seed, chance, runs=scaled(300), times=scaled(20), fault=cut)


@pytest.mark.chaos
def test_an_order_through_failovers(tmp_path: Path) -> None:
    """To a replica that lags behind, with `PALAVER_DURABILITY=replicas=1`: promises hold, ends may be forgotten."""
    seed, chance = seeded()
    durable = {"PALAVER_DURABILITY": "replicas=1"}
    with Pair(0.02).open() as pair, Cluster(tmp_path, redis_url=pair.url, environment=durable) as cluster:
        recorder = Recorder((cluster.stack.url,), chance, PATIENCE, rewinds=True)

        def fail_over() -> str:
            since = pair.synced()
            until = len(recorder.operations) + chance.randint(0, 20)
            eventually(lambda: len(recorder.operations) >= until)
            begun = time.monotonic()
            pair.fail_over()
            recorder.rewound(since, begun, keeps=True)
            return "a primary"

        check_order("failovers", cluster, recorder, seed, chance, runs=scaled(200), times=scaled(20), fault=fail_over)


def through_kills(cluster: Cluster, zygotes: Mapping[str, Zygote], *, runs: int, kills: int) -> None:
    """So many kills hit processes at random moments; one in eight hits Redis, which loses nothing by that."""
    seed, chance = seeded()
    cluster.expect_traceback("WorkerLostError", "BrokenPipeError", "ConnectionError")
    for line in ("worker", "tools"):
        cluster.kill(line)
    victims = {zygotes[line].child(): line for line, count in VICTIMS.items() for _ in range(count)}
    second = f"http://{HOST}:{zygotes['api'].environment['PALAVER_API_PORT']}"

    def kill() -> str:
        if chance.random() < 0.125:
            cluster.kill("redis")
            cluster.start("redis")
            return "redis"
        victim = chance.choice([*victims])
        victim.kill(signal.SIGKILL)
        start_all(victims)
        return victims[victim]

    try:
        start_all(victims)
        recorder = Recorder((cluster.stack.url, second), chance, PATIENCE)
        crowd = check_order("kills", cluster, recorder, seed, chance, runs=runs, times=kills, fault=kill)
        cluster.submitted += crowd.runs.values()
    finally:
        for zygote in zygotes.values():
            zygote.kill_children()


def check_order(
    name: str,
    cluster: Cluster,
    recorder: Recorder,
    seed: int,
    chance: random.Random,
    *,
    runs: int,
    times: int,
    fault: Callable[[], str],
) -> Crowd:
    """There is an order of what clients of at least so many runs do while `fault` is called so many times; these
    clients."""
    crowd, made = Crowd(recorder, chance, cluster.body), Counter[str]()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(lambda: asyncio.run(crowd.go(runs, AT_ONCE)))
        try:
            while made.total() < times and not going.done():
                until = len(recorder.operations) + chance.randint(*BETWEEN)
                eventually(partial(far_enough, going, recorder, until))
                made[f"kills of {fault()}"] += 1
        finally:
            crowd.over = True
        going.result()
    begun = time.monotonic()
    found = recorder.violations()
    counts = {
        **made,
        "runs": len(crowd.runs),
        "clients": crowd.clients,
        "operations": len(recorder.operations),
        "answers lost": recorder.lost,
        "undecided": len(recorder.undecided),
    }
    kinds = Counter(op.what for _, op in recorder.operations)
    print(f"{name}: {counts}; {dict(kinds)}; searched in {time.monotonic() - begun:.1f} s; {len(found)} violations")
    record(f"histories: {name}", seed=seed, counts=counts, violations=len(found))
    assert not found, "\n\n".join(found[:5])
    assert len(recorder.undecided) <= len(crowd.runs) / 50, f"too many orders are possible: {recorder.undecided}"
    return crowd


def far_enough(going: Future[None], recorder: Recorder, until: int) -> bool:
    """Whether so many operations were written down, or there will be no more."""
    return going.done() or len(recorder.operations) >= until
