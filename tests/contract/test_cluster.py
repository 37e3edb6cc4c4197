"""The client of a cluster, on real masters: what moves is followed, and who is away stops nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from redis.exceptions import RedisError

from palaver.store.redis.cluster.client import ClusterClient
from palaver.store.redis.cluster.slots import slot_of
from palaver.vocabulary.ids import all_shards
from tests.redis_cluster import WAITS, RedisCluster
from tests.waiting import aeventually

pytestmark = pytest.mark.process
NAMES = [f"{{p{shard}}}:x" for shard in all_shards(64)]


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    with RedisCluster(replicas=getattr(request, "param", 0)) as cluster:
        yield cluster


@pytest.fixture(params=[False, True], ids=["pooled", "shared"])
async def client(cluster: RedisCluster, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    client = ClusterClient.of(cluster.url, shared=request.param, **WAITS)
    yield client
    await client.aclose()


async def _written(client: Any, value: int) -> list[Any]:
    pipeline = client.pipeline(transaction=False)
    for name in NAMES:
        pipeline.set(name, value, ex=100)
    return [*await pipeline.execute(raise_on_error=False)]


@pytest.mark.parametrize("cluster", [1], indirect=True)
async def test_a_master_that_is_killed_is_waited_for(cluster: RedisCluster, client: Any) -> None:
    channels = client.channels()
    await channels.subscribe(*NAMES)
    for _ in NAMES:
        assert (await channels.get_message(timeout=5))["type"] == "subscribe"
    assert await _written(client, 1) == [True] * len(NAMES)
    lost = cluster.master_of(slot_of(NAMES[0]))
    moved = {name for name in NAMES if cluster.master_of(slot_of(name)) is lost}
    lost.kill()

    assert await _written(client, 2) == [True] * len(NAMES)
    pipeline = client.pipeline(transaction=False)
    for name in NAMES:
        pipeline.get(name)
    assert await pipeline.execute() == [b"2"] * len(NAMES)
    confirmed: set[str] = set()
    while confirmed != moved:
        message = await channels.get_message(timeout=10)
        assert message is not None, moved - confirmed
        confirmed.add(message["channel"].decode())
    for name in NAMES:
        assert await client.eval("return redis.call('SPUBLISH', KEYS[1], 'said')", 1, name) == 1
        assert (await channels.get_message(timeout=5))["data"] == b"said"
    await channels.aclose()


async def test_a_master_that_is_away_stops_its_own_slots_alone(cluster: RedisCluster, client: Any) -> None:
    assert await _written(client, 1) == [True] * len(NAMES)
    lost = cluster.master_of(slot_of(NAMES[0]))
    there = {name: cluster.master_of(slot_of(name)) is not lost for name in NAMES}
    lost.kill()

    answers = await _written(client, 2)
    assert [answer is True for answer in answers] == list(there.values())
    with pytest.raises(RedisError, match=r"(?i)connect|cluster is down|slot"):
        await client.get(NAMES[0])
    lost.start()

    async def back() -> bool:
        with suppress(RedisError):
            return bool(await client.get(NAMES[0]) == b"1")
        return False

    await aeventually(back, within=20)


async def test_a_slot_that_moves_is_followed(cluster: RedisCluster, client: Any) -> None:
    one, other = "{p00}:one", "{p00}:other"
    slot = slot_of(one)
    await asyncio.gather(client.set(one, 1), client.set(other, 2))
    source = cluster.master_of(slot)
    target = next(server for server in cluster.masters() if server is not source)
    at_source, at_target = cluster.client(source), cluster.client(target)
    ids = [at.execute_command("CLUSTER", "MYID") for at in (at_source, at_target)]
    at_target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
    at_source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
    at_source.execute_command("MIGRATE", "127.0.0.1", target.port, one, 0, 5000)

    # One is asked for there (ASK), the other is still here.
    pipeline = client.pipeline(transaction=False)
    pipeline.get(one)
    pipeline.get(other)
    assert await pipeline.execute() == [b"1", b"2"]
    assert await client.get(one) == b"1"
    at_source.execute_command("MIGRATE", "127.0.0.1", target.port, other, 0, 5000)
    for at in (at_target, at_source):
        at.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])

    pipeline = client.pipeline(transaction=True)
    pipeline.hset("{p00}:hash", mapping={"a": 1})
    pipeline.hget("{p00}:hash", "a")
    assert await pipeline.execute() == [1, b"1"]
    assert [await client.get(one), await client.get(other)] == [b"1", b"2"]
