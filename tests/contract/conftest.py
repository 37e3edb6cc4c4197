"""The store's contract runs on fakeredis and on a real server: same tests, same invariants after each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from fakeredis import FakeServer, _helpers
from fakeredis.commands_mixins import server_mixin

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.redis.pools import pool_of
from tests.contract.clock import Clock
from tests.contract.invariants import check_whole
from tests.contract.slots import crossings, watched_scripts
from tests.contract.store_driver import StoreDriver
from tests.contract.witness import Moves, WitnessedCluster, WitnessedFake, WitnessedRedis
from tests.redis_cluster import ON_CLUSTER, WAITS, RedisCluster
from tests.sentinels import BY_SENTINEL, SentinelServer

_HERE: Final = Path(__file__).parent
_EVERYWHERE: Final = frozenset(
    {
        "actions", "agents", "appending", "cancel", "channel_connection", "conversation_usage", "counting",
        "deaths", "durability", "erasure", "event_kinds", "feeds", "full_store", "leases", "listening",
        "outage_sequences", "pool", "postponing", "provider_outages", "queue", "rate_caps", "retention",
        "schedules", "scripts", "server_lists", "steps", "submit", "titles", "versions", "webhooks",
    }
)  # fmt: skip
"""Files that call every script, and that meet a server in their own way: these are held on the fake and on each kind of
server, and all others on one server."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real server holds the contract; the fake, which is slower, repeats what is slow, and what is not held
    everywhere, among the chaos (ADR 0087)."""
    real = {item.nodeid for item in items if not item.get_closest_marker("chaos")}
    for item in items:
        everywhere = item.path.parent == _HERE and item.path.stem.removeprefix("test_") in _EVERYWHERE
        if everywhere:
            item.add_marker(pytest.mark.everywhere)
        repeated = _server_of(item) == "fake" and (item.get_closest_marker("slow") or not everywhere)
        if repeated and re.sub(r"\bfake\b", "real", item.nodeid) in real:
            item.add_marker(pytest.mark.chaos)


def _server_of(item: pytest.Item) -> str | None:
    """The kind of server that a test of the contract runs on; None where it has none of its own."""
    chosen = getattr(item, "callspec", None)
    return None if chosen is None else chosen.params.get("redis")


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """A real server, for all tests of the session."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def address(server: RedisServer) -> Iterator[str]:
    """Its address; with PALAVER_TEST_STORE=sentinel, that of a Sentinel that knows it."""
    if ON_CLUSTER:
        with RedisCluster(replicas=1) as cluster:
            yield cluster.url
        return
    if not BY_SENTINEL:
        yield server.url
        return
    with closing(SentinelServer.of(server.port)) as sentinel:
        sentinel.start()
        yield sentinel.url


@pytest.fixture(scope="module")
def clock() -> Iterator[Clock]:
    """The time in fakeredis, for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(server_mixin, "time", clock)
        patch.setattr(_helpers, "time", clock)
        yield clock


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.process)])
async def redis(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """An empty Redis, fake or real. Afterwards whatever the test left in it must be whole."""
    client: Any
    if request.param == "fake":
        client = WitnessedFake(server=FakeServer())
    elif ON_CLUSTER:
        client = WitnessedCluster.of(request.getfixturevalue("address"), **WAITS)
        await client.flushall()
    else:
        client = WitnessedRedis.from_pool(pool_of(request.getfixturevalue("address"), patience=5))
        await client.flushall()
    client.moves = Moves()
    try:
        yield client
        await check_whole(client)
    finally:
        await client.aclose()


@pytest.fixture(scope="session")
def settings() -> Settings:
    """Settings that no environment changes. Override single fields with ``model_copy(update=…)``."""
    if ON_CLUSTER:
        here: Any = {"redis_url": "redis+cluster://127.0.0.1:1/0", "broker_url": "redis://127.0.0.1:1/0"}
        return Settings(**here, shards=1, lease_seconds=15.0, max_losses=3)
    return Settings(redis_url="redis://127.0.0.1:1/0", shards=1, lease_seconds=15.0, max_losses=3)


@pytest.fixture
async def store(redis: Any, settings: Settings) -> AsyncIterator[Store]:
    """The store under test."""
    store = Store(redis, settings)
    yield store
    await store.feeds.close()


@pytest.fixture
def driver(store: Store, redis: Any) -> StoreDriver:
    """A worker, a client and a sweeper in one."""
    return StoreDriver(store, redis)


@pytest.fixture(scope="session", autouse=True)
def watched() -> Iterator[None]:
    """An eye on what scripts call in fakeredis."""
    with watched_scripts():
        yield


@pytest.fixture(autouse=True)
def one_slot(watched: None) -> Iterator[None]:
    """A test in which nothing was asked that a cluster would refuse."""
    crossings.clear()
    yield
    assert crossings == []
