"""What PALAVER_DURABILITY makes a promise wait for: a primary, its replica, and their disks, for real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from features.stack.ports import free_port
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, ErrorClass, NotDurable, StateConflict, classify
from palaver.schemas.models import AgentSpec, Retry, Submission
from palaver.steps.leases import Lease
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.steps.due_items import DueItem
from tests.contract.store_driver import StoreDriver, calls
from tests.contract.waitaof import knows_waitaof, need_waitaof

pytestmark = pytest.mark.process

BODY = Submission(agent=AgentSpec(model="fake/echo"), input="hello")


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary and its replica."""
    with RedisServer() as primary, RedisServer() as replica:
        yield primary, replica


@asynccontextmanager
async def store_of(server: RedisServer, durability: str) -> AsyncIterator[Store]:
    """A store of that class."""
    async with Store.connect(Settings(redis_url=server.url, durability=durability)) as store:
        yield store


@pytest.fixture
async def primary(servers: tuple[RedisServer, RedisServer]) -> AsyncIterator[Redis]:
    """The primary, empty, with its replica at its heels; both are as they were afterwards."""
    first, second = servers
    async with Redis.from_url(first.url) as redis, Redis.from_url(second.url) as follower:
        await redis.config_set("appendfsync", "everysec")
        await redis.config_set("repl-diskless-sync-delay", 0)
        await follower.replicaof("127.0.0.1", str(first.port))
        await redis.flushall()
        while await redis.wait(1, 100) < 1:
            await redis.set("written", 1)
        await redis.delete("written")
        yield redis
        if second.running:
            second.resume()


@pytest.fixture
async def driver(servers: tuple[RedisServer, RedisServer], primary: Redis) -> AsyncIterator[StoreDriver]:
    """Clients and workers of a store whose promises need the replica."""
    async with store_of(servers[0], "replicas=1") as store:
        yield StoreDriver(store, primary)


async def test_what_was_promised_is_on_the_replica(servers: Any, driver: StoreDriver) -> None:
    run_id = (await driver.submit()).run_id
    await driver.store.runs.cancel(run_id)
    servers[0].pause()
    try:
        async with Redis.from_url(servers[1].url) as follower:
            assert await follower.hget(keys.run(run_id), "status") == b"cancelled"
    finally:
        servers[0].resume()


async def test_nothing_is_promised_while_the_replica_lags(servers: Any, driver: StoreDriver) -> None:
    earlier = (await driver.submit()).run_id
    servers[1].pause()
    with pytest.raises(NotDurable) as first:
        await driver.submit(idempotency_key="k", show=True)
    run_id = first.value.run_id
    assert run_id is not None
    assert first.value.reply.run == await driver.get(run_id)
    assert (await driver.get(run_id)).status == "queued"
    # Nothing is left to write, and the server waits for a connection's own writes only.
    with pytest.raises(NotDurable) as again:
        await driver.submit(idempotency_key="k")
    assert again.value.run_id == run_id
    with pytest.raises(NotDurable):
        await driver.store.runs.cancel(earlier)
    assert classify(again.value).error_class is ErrorClass.STORAGE
    servers[1].resume()
    found = await driver.submit(idempotency_key="k")
    assert (found.run_id, found.replayed) == (run_id, True)
    assert (await driver.submit(show=True)).run is not None
    await driver.store.runs.cancel(earlier)


async def test_many_are_done_though_the_replica_lags(servers: Any, driver: StoreDriver) -> None:
    """And what came of each is told, since it is to be followed up."""
    failed, lease = await driver.begin()
    await driver.give_up(lease)
    old = await driver.get(failed)
    servers[1].pause()
    with pytest.raises(NotDurable) as error:
        await driver.store.bulk.retry([(old, Retry()), (old, Retry())])
    made, refused = error.value.reply
    assert [each.run_id for each in made.deliveries] == [made.run_id]
    assert isinstance(refused, StateConflict)
    with pytest.raises(NotDurable) as error:
        await driver.store.bulk.cancel([old, await driver.get(made.run_id)])
    ended, cancelled = error.value.reply
    assert isinstance(ended, StateConflict)
    assert cancelled.status == "cancelled"
    servers[1].resume()


async def test_a_fork_that_is_not_safe_yet_keeps_its_log(servers: Any, driver: StoreDriver) -> None:
    old, lease = await driver.begin()
    await driver.finish(lease)
    servers[1].pause()
    with pytest.raises(NotDurable) as error:
        await driver.store.control.retry(old, Retry(from_step=1, input="again"))
    servers[1].resume()
    assert error.value.run_id is not None
    run = await driver.get(error.value.run_id)
    (settled,) = await driver.store.due.sweep([DueItem(run.id, "1")], unclaimed_after=0)
    forked = await driver.claim(settled.deliveries[0])
    assert driver.said(forked) == ["hello", "again"]
    await driver.finish(forked)


async def test_a_tool_does_not_begin_before_its_intent_is_safe(servers: Any, driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    servers[1].pause()
    (delivery,) = await driver.ask(lease, "a")  # a model step's verdict waits for nobody
    with pytest.raises(NotDurable):
        await driver.claim(delivery)
    assert (await driver.store.due.depths())["tools"][0] == 1, "it is not free for another try"
    servers[1].resume()
    lease = await driver.claim(delivery)
    assert (lease.attempt, lease.try_number) == (1, 1)
    await driver.answer(lease)
    assert await driver.results(run_id) == [("a", "42")]


async def test_no_tool_begins_in_place_before_its_intent_is_safe(servers: Any, driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    place = (await driver.place(lease))._replace(room=9)
    servers[1].pause()
    settled = await driver.store.steps.settle(lease, calls("a", "b", at_hand=("a", "b")), place=place)
    servers[1].resume()
    assert settled.following == ()
    assert [(each.step, each.number) for each in settled.deliveries] == [("1/a", 2), ("1/b", 2)]
    for delivery in settled.deliveries:
        claimed = await driver.claim(delivery)
        assert (claimed.attempt, claimed.try_number) == (1, 1)
        await driver.answer(claimed)
    assert await driver.results(run_id) == [("a", "42"), ("b", "42")]


async def test_a_tool_begins_in_place_when_its_intent_is_safe(servers: Any, driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    settled = await driver.store.steps.settle(lease, calls("a", at_hand=("a",)), place=await driver.place(lease))
    assert [each.step for each in settled.following] == ["1/a"]


@pytest.fixture
async def fsync(primary: Redis) -> None:
    """A server that can wait for its disk."""
    await need_waitaof(primary)


@pytest.mark.parametrize("policy", ["everysec", "always"])
async def test_what_was_promised_is_on_the_disk(servers: Any, fsync: None, primary: Redis, policy: str) -> None:
    await primary.config_set("appendfsync", policy)
    async with store_of(servers[0], "fsync") as store:
        submitted = await store.runs.submit(BODY)
        lease = await StoreDriver(store, primary).claim(submitted.deliveries[0])
        assert isinstance(lease, Lease)


async def test_a_disk_that_is_never_flushed_promises_nothing(servers: Any, fsync: None, primary: Redis) -> None:
    await primary.config_set("appendfsync", "no")
    async with store_of(servers[0], "fsync") as store:
        with pytest.raises(NotDurable):
            await store.runs.submit(BODY)
    async with store_of(servers[0], "server") as store:
        await store.runs.submit(BODY)


async def test_a_server_that_cannot_promise_is_refused(servers: Any, primary: Redis) -> None:
    """One without the command, without a file, or that does not let us; what is away is not asked."""
    refused = pytest.raises(ConfigurationError, match=r"PALAVER_DURABILITY=fsync: .* Redis 7.2 or later")
    async with store_of(servers[0], "server") as store:
        await store.require_durability()
    async with store_of(servers[0], "fsync") as store:
        if await knows_waitaof(primary):
            await store.require_durability()
            await primary.config_set("appendonly", "no")
        try:
            with refused:
                await store.require_durability()
        finally:
            await primary.config_set("appendonly", "yes")
    async with store_of(RedisServer(port=free_port()), "fsync") as store:
        await store.require_durability()


async def test_a_user_that_may_not_wait_is_refused(servers: Any, fsync: None, primary: Redis) -> None:
    await primary.execute_command("ACL", "SETUSER", "default", "-waitaof")
    try:
        async with store_of(servers[0], "fsync") as store:
            with pytest.raises(ConfigurationError, match="a user that may call it"):
                await store.require_durability()
    finally:
        await primary.execute_command("ACL", "SETUSER", "default", "+waitaof")
