"""The masters of a cluster are killed again and again, and slots move between them, while runs go on."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import pytest

from palaver.store.redis.cluster.slots import SLOTS
from tests.chaos.cluster_bus import ClusterBus
from tests.chaos.promises import Clients, check_all
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.phases import wait
from tests.process.redis_clusters import has_another_master, on
from tests.redis_cluster import NODE_TIMEOUT, RedisCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

PIECES = 8
"""Ranges of slots of a master, of which a move takes one."""


def test_nothing_promised_is_lost_as_masters_are_killed(tmp_path: Path) -> None:
    seed, chance = seeded()
    kills = scaled(40)
    counts: Counter[str] = Counter()
    took: list[float] = []
    with RedisCluster(replicas=1) as masters, on(masters, tmp_path, PALAVER_DURABILITY="replicas=1") as cluster:
        with Clients(cluster) as clients:
            for _ in range(kills):
                clients.some_more()
                wait(chance.uniform(0.0, 0.5))
                begun = time.monotonic()
                kill_a_master(masters, chance)
                took.append(time.monotonic() - begun)
        check_all(cluster, clients.promised)
        counts.update(kills=kills, promised=len(clients.promised), retried=clients.retried)
    print(dict(counts), f"the longest took {max(took):.1f} s")
    record("cluster: masters killed", seed=seed, counts=counts, seconds=took)


def test_a_master_that_is_cut_off_and_keeps_answering_has_promised_nothing(tmp_path: Path) -> None:
    """The others give its slots away, and clients still reach it."""
    seed, chance = seeded()
    cuts = scaled(10)
    counts: Counter[str] = Counter()
    bus = ClusterBus(6)
    with (
        bus.open(),
        RedisCluster(replicas=1, options_of=bus.options_of) as masters,
        on(masters, tmp_path, PALAVER_DURABILITY="replicas=1") as cluster,
    ):
        with Clients(cluster) as clients:
            for _ in range(cuts):
                clients.some_more()
                wait(chance.uniform(0.0, 0.5))
                lost = masters.master_of(chance.choice((0, SLOTS // 2, SLOTS - 1)))
                # It believes for longer than the others that it may answer.
                masters.client(lost).config_set("cluster-node-timeout", 20_000)
                bus.alone = masters.servers.index(lost)
                eventually(lambda: len(masters.masters()) == 4, within=60, why="nobody takes its place")
                taken = masters.writes(lost)
                wait(chance.uniform(0.5, 2.0))
                counts["bytes that it took"] += masters.writes(lost) - taken
                assert masters.client(lost).cluster("info")["cluster_state"] == "ok"
                masters.client(lost).config_set("cluster-node-timeout", round(NODE_TIMEOUT * 1000))
                bus.alone = None
                eventually(partial(masters.follows, lost), within=60, why="it does not follow its successor")
        assert counts["bytes that it took"] > cuts
        check_all(cluster, clients.promised)
        counts.update(cuts=cuts, promised=len(clients.promised), retried=clients.retried)
    print(dict(counts))
    record("cluster: masters cut off", seed=seed, counts=counts)


def test_nothing_is_lost_as_slots_move(tmp_path: Path) -> None:
    seed, chance = seeded()
    moves = scaled(10)
    with RedisCluster() as masters, on(masters, tmp_path) as cluster:
        with Clients(cluster) as clients:
            for _ in range(moves):
                clients.some_more()
                wait(chance.uniform(0.0, 0.5))
                move_some_slots(masters, chance)
        check_all(cluster, clients.promised)
        counts = {"moves": moves, "promised": len(clients.promised), "retried": clients.retried}
    print(counts)
    record("cluster: slots moved", seed=seed, counts=counts)


def kill_a_master(masters: RedisCluster, chance: Random) -> None:
    """Kill one, wait until its replica has its slots, and have it back as the replica of that one."""
    slot = chance.choice((0, SLOTS // 2, SLOTS - 1))
    lost = masters.master_of(slot)
    lost.kill()
    eventually(partial(has_another_master, masters, slot, lost), within=60)
    lost.start()
    eventually(lambda: masters.follows(lost), within=60, why="what was killed is no replica again")


def move_some_slots(masters: RedisCluster, chance: Random) -> None:
    """Move an eighth of the slots of a master to another one; all masters have about as many in the long run."""
    piece = chance.randrange(3 * PIECES)
    first, last = SLOTS * piece // (3 * PIECES), SLOTS * (piece + 1) // (3 * PIECES) - 1
    source = masters.master_of(first)
    target = chance.choice([server for server in masters.servers if server is not source])
    masters.move_slots(first, last, source, target)
