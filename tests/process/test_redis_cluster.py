"""The store on a cluster, deliveries on one Redis: runs end though a master is killed, and who is away stops nobody
else."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from palaver.schemas.models import Run
from palaver.store.redis import keys, provider_keys
from palaver.store.redis.cluster.client import HOME
from palaver.store.redis.cluster.slots import SLOTS, slot_of
from palaver.vocabulary.ids import MAX_SHARDS, all_shards, shard_of
from tests.process.cluster import Cluster
from tests.process.redis_clusters import has_another_master, on
from tests.redis_cluster import RedisCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]


def whole(cluster: Cluster, run_id: str) -> Run:
    run = cluster.ended(run_id)
    assert run.status == "completed", run
    return run


def test_no_promise_is_lost_with_masters_that_are_killed(tmp_path: Path) -> None:
    with RedisCluster(replicas=1) as masters, on(masters, tmp_path, PALAVER_DURABILITY="replicas=1") as cluster:
        begun: list[str] = []
        for slot in (0, SLOTS // 2, SLOTS - 1):
            lost = masters.master_of(slot)
            begun += [promised(cluster) for _ in range(10)]
            lost.kill()
            # While nobody has its slots, and while the one that has them has no replica, nothing is promised there.
            eventually(partial(has_another_master, masters, slot, lost))
            lost.start()
            begun += [promised(cluster) for _ in range(5)]

        for run_id in begun:
            whole(cluster, run_id)
        assert {len(cluster.tool_starts(run_id)) for run_id in begun} == {5}


def promised(cluster: Cluster) -> str:
    """A run whose submit is sent again under its key until it is answered: what a client does."""
    body, key = cluster.body("tool-5", tools=["record"]), f"key-{len(cluster.submitted)}"
    return eventually(lambda: cluster.post(body, key))


@pytest.mark.parametrize("number", [1, 2])
def test_a_master_without_a_replica_stops_its_own_runs_alone(tmp_path: Path, number: int) -> None:
    with RedisCluster() as masters, on(masters, tmp_path) as cluster:
        lost = masters.servers[number]
        there = {shard: masters.master_of(slot_of(keys.due(shard))) is not lost for shard in all_shards(MAX_SHARDS)}
        # The first master has what all share: the fleet, and the gate of the provider.
        assert masters.master_of(HOME) is not lost is not masters.master_of(slot_of(provider_keys.of_gate("fake").gate))
        begun = [cluster.submit("tool-20", tools=["record"]) for _ in range(20)]
        waits = [run_id for run_id in begun if not there[shard_of(run_id)]]
        assert 0 < len(waits) < len(begun)
        assert submitted(cluster) == len(begun)
        lost.kill()

        for run_id in begun:
            if there[shard_of(run_id)]:
                whole(cluster, run_id)
        for run_id in waits:
            eventually(partial(is_said_to_be_away, cluster, run_id))
        # Each process knows by now, or at the first that it is asked.
        eventually(lambda: cluster.submit("tool-2", tools=["record"]))
        later = [cluster.submit("tool-2", tools=["record"]) for _ in range(30)]
        assert all(there[shard_of(run_id)] for run_id in later)
        for run_id in later:
            whole(cluster, run_id)

        listed = cluster.http.get("/v1/runs", params={"limit": 100})
        assert {run["id"] for run in listed.json()["data"]} >= {*begun, *later} - {*waits}
        missing = [*there.values()].count(False)
        for path in ("/v1/runs", "/v1/conversations", "/v1/queues", "/readyz", "/v1/usage", "/v1/statistics"):
            answer = cluster.http.get(path)
            assert answer.status_code == 200, (path, answer.text)
            # Gates of providers come on top.
            assert int(answer.headers["Palaver-Incomplete"].removeprefix("parts=")) >= missing, path
        assert all(is_said_to_be_away(cluster, run_id) for run_id in waits)
        # A count that went down would look as if it had begun anew.
        assert len(begun) < submitted(cluster) <= len(cluster.submitted)

        lost.start()
        for run_id in waits:
            whole(cluster, run_id)
        assert {len(cluster.tool_starts(run_id)) for run_id in begun} == {20}
        eventually(lambda: "Palaver-Incomplete" not in cluster.http.get("/v1/runs").headers)


def test_the_master_that_has_what_all_share_is_waited_for(tmp_path: Path) -> None:
    with RedisCluster() as masters, on(masters, tmp_path) as cluster:
        lost = masters.master_of(HOME)
        # Nobody calls a model without the gate of its provider.
        assert lost is masters.master_of(slot_of(provider_keys.of_gate("fake").gate))
        begun = [cluster.submit("tool-20", tools=["record"]) for _ in range(10)]
        lost.kill()

        eventually(lambda: cluster.http.get("/readyz").status_code == 200)
        later = [eventually(lambda: cluster.submit("tool-2", tools=["record"])) for _ in range(10)]
        assert cluster.http.get("/readyz").status_code == 200
        lost.start()
        for run_id in (*begun, *later):
            whole(cluster, run_id)
        assert {len(cluster.tool_starts(run_id)) for run_id in begun} == {20}


def test_slots_move_whole_while_runs_go_on(tmp_path: Path) -> None:
    with RedisCluster() as masters, on(masters, tmp_path) as cluster:
        here, there = masters.servers[1:]
        first, last = SLOTS // 3 + 1, 2 * SLOTS // 3 - 1
        begun: list[str] = []
        for source, target in [(here, there), (there, here)] * 3:
            begun += [cluster.submit("tool-5", tools=["record"]) for _ in range(10)]
            masters.move_slots(first, last, source, target)

        for run_id in begun:
            whole(cluster, run_id)
        assert {len(cluster.model_calls(run_id)) for run_id in begun} == {6}
        assert {len(cluster.tool_starts(run_id)) for run_id in begun} == {5}


def test_slots_move_key_by_key_while_the_fleet_is_stopped(tmp_path: Path) -> None:
    with RedisCluster() as masters, on(masters, tmp_path) as cluster:
        source, target = masters.servers[1:]
        begun = [cluster.submit("tool-20", tools=["record"]) for _ in range(20)]
        for name in ("worker", "tools", "api"):
            child = cluster.terminate(name)
            child.reap(time.monotonic() + 30)
        for slot in range(SLOTS // 3 + 1, 2 * SLOTS // 3 - 1):
            if masters.client(source).execute_command("CLUSTER", "COUNTKEYSINSLOT", slot):
                masters.move_key_by_key(slot, source, target)
        for name in ("worker", "tools", "api"):
            cluster.start(name)

        for run_id in begun:
            whole(cluster, run_id)
        assert {len(cluster.tool_starts(run_id)) for run_id in begun} == {20}


def submitted(cluster: Cluster) -> float:
    """The runs that were submitted, by the metrics."""
    answer = cluster.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    lines = [line.split() for line in answer.text.splitlines() if line.startswith("palaver_runs_submitted_total")]
    return sum(float(number) for _, number in lines)


def is_said_to_be_away(cluster: Cluster, run_id: str) -> bool:
    """Whether the API answers for this run alone that the store is away."""
    answer = cluster.http.get(f"/v1/runs/{run_id}")
    return answer.status_code == 503 and answer.json()["code"] == "unavailable"
