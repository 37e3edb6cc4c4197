"""Who is gone is seen on a cluster, too: workers say who they are at many masters, and are connected to one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.fleet.first_look import FirstLook
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis import fleet_keys
from palaver.store.redis.cluster.client import HOME
from palaver.store.redis.cluster.slots import slot_of
from tests.redis_cluster import RedisCluster
from tests.waiting import PATIENCE, aeventually

pytestmark = pytest.mark.process
NAMES: Final = [f"a{number}" for number in range(12)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        home = cluster.master_of(HOME)
        at_home = [cluster.master_of(slot_of(fleet_keys.worker(name))) is home for name in NAMES]
        assert not at_home[0], "the first worker is known at another master than the one that workers are connected to"
        assert any(at_home)
        yield cluster


@pytest.fixture
def here(cluster: RedisCluster) -> Settings:
    return Settings(redis_url=cluster.url, broker_url="amqp://127.0.0.1:1", shards=4)


@pytest.fixture
async def watcher(here: Settings) -> AsyncIterator[Store]:
    store = Store.connect(here)
    yield store
    await store.close()


async def test_a_first_look_sees_who_is_gone_at_each_master(here: Settings, watcher: Store) -> None:
    async with asyncio.timeout(PATIENCE):
        living, dying = Store.connect(here), Store.connect(here)
        for name in NAMES:
            report = WorkerReport(name, ("model",), in_flight=1, capacity=9, draining=False)
            await (living if name == NAMES[0] else dying).fleet.report(report, connected=True)
        await dying.close()
        first = FirstLook(here)

        async def all_are_suspected() -> bool:
            await asyncio.to_thread(first.take)
            return {each.first_seen.id for each in await asyncio.to_thread(first.suspects)} == set(NAMES[1:])

        try:
            # A server may know of a connection for a moment after its end.
            await aeventually(all_are_suspected)
            assert not any([await watcher.fleet.is_heard(name) for name in NAMES])
        finally:
            await asyncio.to_thread(first.close)
            await living.close()
