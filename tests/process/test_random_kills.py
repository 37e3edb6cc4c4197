"""Kills at random moments, as fast as processes start again: nothing is lost, doubled or started twice, and each run is
one whole trace.

The checks behind every test do the counting (checks.py): logs whole, every model call derivable from the log, no tool
that must not be started twice started twice. Here is the killing, and what a collector got of it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from features.stack.ports import HOST
from tests.chaos.seeds import scaled, seeded
from tests.chaos.traffic import Traffic
from tests.chaos.zygote import Forked, Zygote, start_all, zygotes_of
from tests.process.capped import capped
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.otlp import LATE, Receiver
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

VICTIMS = {"worker": 2, "tools": 2, "api": 1}
"""Beside two workers of models and tools. Each that asks models is a sweeper as well."""
MODELS = ("tool-4+use-each+rate-400", "steps-2-1-3+use-each+rate-400", "say-30+rate-100")
KILLS = 15
BOTH = "workers of models and tools"
STARTING = "kills of what is starting"
ROUND = 300
"""Kills between two looks at everything: what they left has to fit into memory."""


@pytest.fixture
def cluster(traced: Cluster) -> Iterator[Cluster]:
    traced.heal()
    traced.mark()
    with capped(traced):
        yield traced
        traced.heal()
        check(traced)


@pytest.fixture
def zygotes(traced: Cluster) -> Iterator[Mapping[str, Zygote]]:
    with zygotes_of(traced) as zygotes:
        yield zygotes


def test_random_kills(cluster: Cluster, zygotes: Mapping[str, Zygote], receiver: Receiver) -> None:
    kill_at_random(cluster, zygotes, receiver, kills=KILLS, under_way=10)


@pytest.mark.chaos
def test_many_random_kills(cluster: Cluster, zygotes: Mapping[str, Zygote], receiver: Receiver) -> None:
    kill_at_random(cluster, zygotes, receiver, kills=scaled(1000), under_way=16)


def kill_at_random(
    cluster: Cluster, zygotes: Mapping[str, Zygote], receiver: Receiver, *, kills: int, under_way: int
) -> None:
    """Let so many kills hit processes that keep so many runs under way; every run ends as it was asked to, and is one
    trace."""
    seed, chance = seeded()
    for line in ("worker", "tools"):
        cluster.kill(line)
    port = zygotes["api"].environment["PALAVER_API_PORT"]
    try:
        victims = {zygotes[line].child(): line for line, count in VICTIMS.items() for _ in range(count)}
        victims |= {zygotes["worker"].child("", "--tools"): BOTH for _ in range(2)}
        with httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False, timeout=PATIENCE) as door:
            traffic = Traffic(cluster, chance, door, aimed=False)
            for done in range(0, kills, ROUND):
                # The second is of a child that starts as its worker dies.
                cluster.expect_traceback("WorkerLostError", "BrokenPipeError")
                made = one_round(cluster, traffic, victims, min(ROUND, kills - done), under_way, chance)
                runs = set(cluster.submitted)
                traffic.conclude("random kills", seed=seed, made=made)
                whole_traces(receiver, runs)
    finally:
        for zygote in zygotes.values():
            zygote.kill_children()


def whole_traces(receiver: Receiver, runs: set[str]) -> None:
    """Each of the runs is one trace, and nothing is missing in it."""
    eventually(lambda: runs <= receiver.roots(), within=LATE, why="the roots of all runs")
    found = receiver.check()
    lost = sum(span.attributes.get("palaver.outcome") == "lost" for span in receiver.spans)
    print(f"{len(runs)} runs: {dict(found)}, {lost} attempts of lost workers")


def one_round(
    cluster: Cluster,
    traffic: Traffic,
    victims: Mapping[Forked, str],
    kills: int,
    under_way: int,
    chance: random.Random,
) -> Counter[str]:
    """How many kills hit which kind; those of processes that were not ready yet come on top."""
    made: Counter[str] = Counter()
    while made.total() - made[STARTING] < kills:
        start_all(victims)
        traffic.top_up(under_way, lambda: body(cluster, chance))
        if chance.random() < 0.2:
            traffic.cancel_one()
        made[kill_one(victims, chance)] += 1
        pause(chance.uniform(0.0, 0.3))
    start_all(victims)
    return made


def body(cluster: Cluster, chance: random.Random) -> dict[str, Any]:
    """A run of tool turns or of an answer alone: calculator inline, one on a loop, the others in a child of a tools
    worker."""
    tools = ["calculator", "record", "record_async", "record_idempotent"]
    return cluster.body(f"priced/{chance.choice(MODELS)}", tools=tools)


def kill_one(victims: Mapping[Forked, str], chance: random.Random) -> str:
    """Kill one process, or one child of a tools worker. What that was: STARTING is seldom wanted."""
    ready = [victim for victim in victims if victim.ready]
    victim = chance.choice(list(victims) if chance.random() < 0.1 or not ready else ready)
    kind = f"kills of {victims[victim]}" if victim in ready else STARTING
    with open(f"/proc/{victim.pid}/task/{victim.pid}/children") as listed:
        children = [int(pid) for pid in listed.read().split()]
    if children and chance.random() < 0.5:
        os.kill(chance.choice(children), signal.SIGKILL)
        return "kills of tools' children"
    victim.kill(signal.SIGKILL)
    return kind


def pause(seconds: float) -> None:
    """Kills come at any moment, not when the one before has had its effect."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(left)
