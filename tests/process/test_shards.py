"""Many shards on a cluster of three masters: who sweeps shares them, and nothing is left lying where one of them is
gone or a hint is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from palaver.config.settings import Settings
from palaver.schemas.models import AgentSpec, Submission
from palaver.store import Store
from palaver.store.redis import fleet_keys
from palaver.store.redis.rounds import FULL_ROUND, SILENCE
from palaver.vocabulary.ids import MAX_SHARDS, shard_of
from tests.process.cluster import Cluster
from tests.process.redis_clusters import on
from tests.redis_cluster import RedisCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]


def _undelivered(masters: RedisCluster, number: int, *, marked: bool = True) -> list[str]:
    """Runs that were taken on by a process that died before it could send their deliveries; also before it could mark
    their shards, unless they are ``marked``."""

    async def submit() -> list[str]:
        settings = Settings(redis_url=masters.url, broker_url="amqp://127.0.0.1:1")
        assert settings.shards == MAX_SHARDS
        async with Store.connect(settings) as store:
            marks = store.scripts._marks
            if not marked:
                store.scripts._marks = None
            submission = Submission(agent=AgentSpec(model="fake/echo"), input="hello")
            begun = [(await store.runs.submit(submission)).run_id for _ in range(number)]
            if marks is not None and marks._saying is not None:
                await marks._saying
            return begun

    return asyncio.run(submit())


def _sharing(masters: RedisCluster) -> set[bytes]:
    with masters.whole() as server:
        return {*server.hkeys(fleet_keys.SWEEPERS)}


def _all_end(cluster: Cluster, begun: list[str], within: float) -> None:
    for run_id in begun:
        assert cluster.ended(run_id, within=within).status == "completed"


@pytest.mark.parametrize("gone", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_who_is_gone_leaves_no_shard_behind(tmp_path: Path, gone: signal.Signals) -> None:
    with RedisCluster() as masters, on(masters, tmp_path) as cluster:
        cluster.start("worker")
        eventually(lambda: len(_sharing(masters)) == 2)
        lost = cluster.stack.pids("worker")[0]
        os.kill(lost, gone)
        try:
            begun = _undelivered(masters, 60)
            assert len({*map(shard_of, begun)}) > 30
            # Each shard is somebody's: half of them were those of the one that is gone.
            _all_end(cluster, begun, within=SILENCE + 20)
        finally:
            if gone is signal.SIGSTOP:
                os.kill(lost, signal.SIGCONT)


def test_a_hint_that_is_lost_makes_a_run_wait_for_a_round(tmp_path: Path) -> None:
    with RedisCluster() as masters, on(masters, tmp_path) as cluster:
        eventually(lambda: len(_sharing(masters)) == 1)
        begun = _undelivered(masters, 10, marked=False)
        with masters.whole() as server:
            server.delete(fleet_keys.BUSY)
        _all_end(cluster, begun, within=FULL_ROUND + 20)
