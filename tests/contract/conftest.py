"""The store's contract runs on a real server, with the same invariants after each test; what turns the clock, on
fakeredis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from fakeredis import FakeServer

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.redis.pools import pool_of
from tests.contract.clock import Clock, turned_clock
from tests.contract.invariants import check_whole
from tests.contract.slots import crossings, watched_scripts
from tests.contract.store_driver import StoreDriver
from tests.contract.witness import Moves, WitnessedCluster, WitnessedFake, WitnessedRedis
from tests.redis_cluster import ON_CLUSTER, WAITS, RedisCluster
from tests.sentinels import BY_SENTINEL, SentinelServer

_HERE: Final = Path(__file__).parent
_EVERYWHERE: Final = frozenset(
    {
        "actions", "agents", "appending", "archiving", "cancel", "channel_connection", "conversation_usage", "counting",
        "deaths", "durability", "erasure", "event_kinds", "feeds", "full_store", "leases", "listening",
        "outage_sequences", "pool", "postponing", "provider_outages", "queue", "rate_caps", "retention",
        "schedules", "scripts", "server_lists", "steps", "submit", "titles", "versions", "webhooks",
    }
)  # fmt: skip
"""Files that call every script, and that meet a server in their own way: these are held on each kind of server, and all
others on one."""
_CONNECTED: Final = frozenset({"address", "server"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test on a server is one with processes, and says so."""
    for item in items:
        if item.path.parent.name != _HERE.name:
            continue
        names = {*getattr(item, "fixturenames", ())}
        if names & _CONNECTED or ("redis" in names and "clock" not in names):
            item.add_marker(pytest.mark.process)
        if item.path.stem.removeprefix("test_") in _EVERYWHERE:
            item.add_marker(pytest.mark.everywhere)


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


@pytest.fixture
def clock() -> Iterator[Clock]:
    """The time of the store, which then is fakeredis."""
    with turned_clock() as clock:
        yield clock


@pytest.fixture
async def redis(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """An empty Redis. Afterwards whatever the test left in it must be whole."""
    client: Any
    if "clock" in request.fixturenames:
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


@pytest.fixture(autouse=True)
def one_slot(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test in which nothing was asked that a cluster would refuse: not by its clients, and, where it is held on every
    kind of server, not by scripts."""
    crossings.clear()
    on_a_server = "redis" in request.fixturenames and "clock" not in request.fixturenames
    if request.node.get_closest_marker("everywhere") and on_a_server and not ON_CLUSTER:
        with watched_scripts(request.getfixturevalue("server").url):
            yield
    else:
        yield
    assert crossings == []
