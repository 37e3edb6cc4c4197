"""The store on a cluster of masters with replicas, deliveries on one Redis: runs end though a master is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaver.stack.redis_server import RedisServer
from tests.process.cluster import Cluster
from tests.redis_cluster import RedisCluster

pytestmark = [pytest.mark.process, pytest.mark.chaos]


def test_a_master_is_killed_while_runs_go_on(tmp_path: Path) -> None:
    with RedisCluster(replicas=1) as masters, RedisServer() as broker:
        places = {"PALAVER_REDIS_URL": masters.url, "PALAVER_BROKER_URL": broker.url}
        with Cluster(tmp_path, redis_url=broker.url, environment=places) as cluster:
            begun = [cluster.submit("tool-5", tools=["record"]) for _ in range(20)]
            masters.masters()[0].kill()
            later = [cluster.submit("tool-2", tools=["record"]) for _ in range(10)]

            assert {cluster.ended(run_id).status for run_id in (*begun, *later)} == {"completed"}
            assert {len(cluster.model_calls(run_id)) for run_id in begun} == {6}
            assert {len(cluster.tool_starts(run_id)) for run_id in begun} == {5}
