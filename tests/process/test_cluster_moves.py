"""Slots of a cluster move to another master, as a whole, while runs go on: no step is lost, and none is made twice."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from palaver.stack.redis_server import RedisServer
from tests.process.cluster import Cluster
from tests.redis_cluster import RedisCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]


def test_runs_go_on_while_slots_move(tmp_path: Path) -> None:
    with RedisCluster() as masters, RedisServer() as broker:
        one, other, _ = (masters.client(server) for server in masters.servers)
        with closing(one), closing(other):
            try:
                one.execute_command("CLUSTER", "GETSLOTMIGRATIONS")
            except ResponseError:
                pytest.skip("this server moves slots key by key")
            ids = [client.execute_command("CLUSTER", "MYID") for client in (one, other)]
            places = {"PALAVER_REDIS_URL": masters.url, "PALAVER_BROKER_URL": broker.url}
            with Cluster(tmp_path, redis_url=broker.url, environment=places) as cluster:
                begun = [cluster.submit("tool-5", tools=["record"]) for _ in range(20)]
                for source, to in ((one, ids[1]), (other, ids[0]), (one, ids[1])):
                    source.execute_command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "5000", "NODE", to)
                    eventually(partial(_all_moved, source), within=30)
                    begun += [cluster.submit("tool-2", tools=["record"]) for _ in range(5)]

                assert {cluster.ended(run_id).status for run_id in begun} == {"completed"}
                assert {len(cluster.model_calls(run_id)) for run_id in begun[:20]} == {6}
                assert {len(cluster.tool_starts(run_id)) for run_id in begun[:20]} == {5}


def _all_moved(source: Any) -> bool:
    moves = source.execute_command("CLUSTER", "GETSLOTMIGRATIONS")
    return {move["state"] for move in moves if move["operation"] == "EXPORT"} == {"success"}
