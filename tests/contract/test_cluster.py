"""The client of a cluster, on real masters: what moves is followed, and who is away stops nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, RedisError

from palaver.config.server_lists import HostPort
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, NotDurable
from palaver.schemas.models import AgentSpec, Submission
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.redis.cluster.client import HOME, PATIENCE, ClusterClient
from palaver.store.redis.cluster.slots import SLOTS, slot_of
from palaver.store.redis.rounds import FULL_ROUND
from palaver.store.redis.visits import Gap, telling
from palaver.vocabulary.ids import MAX_SHARDS, all_shards, shard_of
from palaver.vocabulary.step_kinds import MODEL
from tests.contract.waitaof import need_waitaof
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
        assert (await channels.get_message(timeout=60))["type"] == "subscribe"
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
        message = await channels.get_message(timeout=60)
        assert message is not None, moved - confirmed
        confirmed.add(message["channel"].decode())
    for name in NAMES:
        assert await client.eval("return redis.call('SPUBLISH', KEYS[1], 'said')", 1, name) == 1
        assert (await channels.get_message(timeout=60))["data"] == b"said"
    await channels.aclose()


async def test_a_master_that_is_away_stops_its_own_slots_alone(cluster: RedisCluster, client: Any) -> None:
    assert await _written(client, 1) == [True] * len(NAMES)
    lost = cluster.master_of(slot_of(NAMES[0]))
    there = {name: cluster.master_of(slot_of(name)) is not lost for name in NAMES}
    lost.kill()

    answers = await _written(client, 2)
    assert [answer is True for answer in answers] == list(there.values())
    with pytest.raises(RedisError, match=r"(?i)does not answer|connect"):
        await client.get(NAMES[0])
    lost.start()

    async def back() -> bool:
        with suppress(RedisError):
            return bool(await client.get(NAMES[0]) == b"1")
        return False

    await aeventually(back)


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


SHARDS = all_shards(32)
HERE = next(shard for shard in SHARDS if SLOTS // 3 < slot_of(keys.due(shard)) < SLOTS * 2 // 3)
"""One on the second master, which has nothing that all share: neither the fleet nor the name of the store."""


def _store(cluster: RedisCluster, **more: Any) -> Store:
    here: Any = {"redis_url": cluster.url, "broker_url": "redis://127.0.0.1:1/0", "shards": len(SHARDS), **more}
    return Store.connect(Settings(**here))


async def _begun_in_each(store: Store) -> dict[str, str]:
    """A run in each shard, by that."""
    begun: dict[str, str] = {}
    while len(begun) < len(SHARDS):
        run_id = (await store.runs.submit(_echo())).run_id
        begun[shard_of(run_id)] = run_id
    return begun


async def test_masters_that_stall_together_are_waited_for_as_one_server_is(client: Any) -> None:
    """Each submit asks how full they are."""
    masters = await client.masters()
    await client.info("memory")
    # Longer than one of them is waited for when another one tells.
    await asyncio.gather(*(master.client_pause(1500, all=True) for master in masters))
    assert int((await client.info("memory"))["used_memory"]) > 0
    await asyncio.gather(*(master.client_pause(2500, all=True) for master in masters[1:]))
    assert int((await asyncio.wait_for(client.info("memory"), 60))["used_memory"]) > 0


async def test_what_visits_all_shards_goes_on_without_a_master(cluster: RedisCluster) -> None:
    async with _store(cluster) as store:
        begun = await _begun_in_each(store)
        everything = len((await store.runs.list({}, limit=500)).runs)
        assert await _submitted(store) == everything
        assert await store.rewinds.look() is None
        lost = cluster.master_of(slot_of(keys.due(HERE)))
        away = {shard for shard in SHARDS if cluster.master_of(slot_of(keys.due(shard))) is lost}
        assert "00" not in away
        lost.kill()

        await store.due.due()
        assert {*store.missing()} == away
        with pytest.raises(ConnectionError, match=f"{len(away)} of {len(SHARDS)} parts"):
            await store.runs.list({}, limit=500)
        with telling(gap := Gap()):
            listed = [run.id for run in (await store.runs.list({}, limit=500)).runs]
        assert gap.missing == away
        assert {shard_of(run_id) for run_id in listed} == {*SHARDS} - away
        later = [(await store.runs.submit(_echo())).run_id for _ in range(20)]
        assert away.isdisjoint(map(shard_of, later))
        assert await store.rewinds.look() is None
        with telling(Gap()):
            # A count that went down would look as if it had begun anew.
            assert await _submitted(store) == everything + len(later)
        with pytest.raises(RedisError):
            await store.runs.get(begun[HERE])
        await store.runs.get(begun["00"])
        await store.due.fill()

        lost.start()
        await aeventually(lambda: store.runs.get(begun[HERE]))
        assert len((await store.runs.list({}, limit=500)).runs) == everything + len(later)
        assert await store.rewinds.look() is None
        assert store.missing() == []


async def _submitted(store: Store) -> Any:
    return (await store.measuring.read([]))["palaver_runs_submitted_total"][()]


def _echo() -> Submission:
    return Submission(agent=AgentSpec(model="fake/echo"), input="hello")


async def test_what_happens_in_one_of_very_many_shards_is_seen_at_once_and_where_its_mark_is_lost_in_a_round(
    cluster: RedisCluster,
) -> None:
    async with _store(cluster, shards=MAX_SHARDS) as api, _store(cluster, shards=MAX_SHARDS) as worker:
        now = 0.0
        worker.rounds._clock = lambda: now
        await worker.rounds.share("w1")

        async def looks_until_found(run_id: str) -> int:
            """Looks of a sweeper until it finds a delivery that nobody claims: four a second."""
            nonlocal now
            for number in range(1, 4 * round(FULL_ROUND) + 5):
                now += 0.25
                await worker.rounds.share("w1")
                if any(item.run_id == run_id for item in await worker.due.unclaimed(MODEL.queue, 0, 100)):
                    return number
            raise AssertionError("nobody finds it")

        for _ in range(3):
            begun = (await api.runs.submit(_echo())).run_id
            marks: Any = api.scripts._marks
            await marks._saying
            assert await looks_until_found(begun) <= 8
        api.scripts._marks = None
        unmarked = [(await api.runs.submit(_echo())).run_id for _ in range(5)]
        assert max([await looks_until_found(run_id) for run_id in unmarked]) > 8

        # A process knows no part of it while nobody can say: it looks at what is there.
        lost = cluster.master_of(HOME)
        there = next(run_id for run_id in unmarked if cluster.master_of(slot_of(keys.run(run_id))) is not lost)
        lost.kill()
        now += 1
        await worker.rounds.share("w1")
        assert worker.rounds._busy == sorted(worker.rounds.shards)
        assert await looks_until_found(there) <= 4 * MAX_SHARDS // 256 + 8


async def test_metrics_and_queues_of_very_many_shards_are_a_few_messages_to_each_master(cluster: RedisCluster) -> None:
    async with _store(cluster, shards=MAX_SHARDS) as store:
        for _ in range(20):
            await store.runs.submit(_echo())
        assert (await store.measuring.read([]))["palaver_runs"][("queued",)] == 20
        assert (await store.due.depths())[MODEL.queue][0] == 20
        assert await store.capacity.runs() >= 20
        assert len((await store.runs.list({}, limit=50)).runs) == 20


class Counted(ClusterClient):
    """A client that counts how often it turns to each server."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.asked = Counter[HostPort]()
        super().__init__(*args, **options)

    def node(self, address: HostPort) -> Redis:
        self.asked[address] += 1
        return super().node(address)


async def test_who_is_away_for_long_is_asked_now_and_then(cluster: RedisCluster) -> None:
    one: Any = Counted.of(cluster.url, **WAITS)
    await one.set(NAMES[0], 1)
    lost = cluster.master_of(slot_of(NAMES[0]))
    lost.kill()
    with pytest.raises(RedisError):
        await one.get(NAMES[0])
    assert one.is_away(NAMES[0])
    one.asked.clear()
    began = asyncio.get_running_loop().time()
    for _ in range(500):
        with pytest.raises(ConnectionError):
            await one.get(NAMES[0])
    lasted = asyncio.get_running_loop().time() - began

    assert one.asked[HostPort("127.0.0.1", lost.port)] <= 3 * (1 + lasted)
    assert lasted < PATIENCE
    await one.aclose()


@pytest.mark.parametrize("cluster", [1], indirect=True)
async def test_a_promise_about_many_runs_waits_at_each_master(cluster: RedisCluster) -> None:
    async with _store(cluster, durability="replicas=1") as store:
        begun = [await store.runs.get(run_id) for run_id in (await _begun_in_each(store)).values()]
        assert len(await store.bulk.cancel(begun[:8])) == 8
        (silent,) = [
            server
            for server in cluster.servers
            if cluster.client(server).info("replication").get("master_port") == cluster.servers[0].port
        ]
        silent.kill()
        there = [run for run in begun[8:] if cluster.master_of(slot_of(keys.run(run.id))) is not cluster.servers[0]]
        assert len(await store.bulk.cancel(there[:5])) == 5
        # Whichever is asked last.
        for some in (begun[8:], [*reversed(begun[8:])]):
            with pytest.raises(NotDurable):
                await store.bulk.cancel(some)


async def test_each_master_is_asked_for_what_promises_need(cluster: RedisCluster) -> None:
    async with Redis.from_url(cluster.servers[0].url) as one:
        await need_waitaof(one)
    async with _store(cluster, durability="fsync") as store:
        for server in cluster.servers:
            cluster.client(server).config_set("appendonly", "yes")
        await store.require_durability()
        cluster.client(cluster.servers[-1]).config_set("appendonly", "no")
        with pytest.raises(ConfigurationError, match="WAITAOF"):
            await store.require_durability()
