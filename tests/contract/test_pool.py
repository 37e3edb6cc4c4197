"""The pool of connections to Redis: nobody goes without one as long as those before him come to an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError

from features.stack.redis_server import RedisServer
from palaver.store.redis.pool import Pool
from tests.chaos.faulty_proxy import FaultyProxy
from tests.waiting import aeventually

pytestmark = pytest.mark.process


@pytest.fixture
async def pool(server: RedisServer) -> AsyncIterator[Pool]:
    pool: Pool = Pool.from_url(server.url, max_connections=3, patience=0.2)
    yield pool
    await pool.disconnect()


async def test_many_users_are_served_in_the_order_in_which_they_asked(server: RedisServer) -> None:
    pool: Pool = Pool.from_url(server.url, max_connections=3, patience=20)
    order: list[int] = []
    for connection in [await pool.get_connection() for _ in range(3)]:
        await pool.release(connection)  # made beforehand: one that is slow to be made would lose its place

    async def use(number: int) -> None:
        connection = await pool.get_connection()
        order.append(number)
        await asyncio.sleep(0)
        await pool.release(connection)

    await asyncio.gather(*(use(number) for number in range(500)))
    # Three are served side by side.
    assert max(abs(place - number) for place, number in enumerate(order)) <= 3
    redis = Redis(connection_pool=pool)
    assert sorted(await asyncio.gather(*(redis.incr("test_pool") for _ in range(500)))) == list(range(1, 501))
    await redis.delete("test_pool")
    await pool.disconnect()


async def test_who_finds_none_free_in_time_is_told_and_takes_none(pool: Pool) -> None:
    taken = [await pool.get_connection() for _ in range(3)]
    for _ in range(5):
        with pytest.raises(ConnectionError, match="no connection was free"):
            await pool.get_connection()
    for connection in taken:
        await pool.release(connection)
    again = [await pool.get_connection() for _ in range(3)]
    assert set(map(id, again)) == set(map(id, taken))
    for connection in again:
        await pool.release(connection)


async def test_a_server_that_is_away_costs_no_places() -> None:
    pool: Pool = Pool.from_url("redis://127.0.0.1:1/0", max_connections=2, patience=0.2)
    for _ in range(5):
        with pytest.raises(ConnectionError, match="Connect"):
            await pool.get_connection()
    await pool.disconnect()


async def test_a_user_who_is_cancelled_leaves_the_line(pool: Pool) -> None:
    taken = [await pool.get_connection() for _ in range(3)]
    waiting = [asyncio.create_task(pool.get_connection()) for _ in range(4)]
    await asyncio.sleep(0)
    for task in waiting[:3]:
        task.cancel()
    await pool.release(taken.pop())
    taken.append(await waiting[3])
    for connection in taken:
        await pool.release(connection)
    assert [await pool.get_connection() is not None for _ in range(3)] == [True] * 3


async def test_a_connection_that_was_reset_while_idle_is_made_anew(server: RedisServer) -> None:
    with FaultyProxy(server.port).open() as proxy:
        pool: Pool = Pool.from_url(proxy.redis_url, max_connections=1, patience=5, retry=Retry(NoBackoff(), 0))
        redis = Redis(connection_pool=pool)
        await redis.ping()
        idle: Any = await pool.get_connection()
        await pool.release(idle)
        proxy.reset()
        await aeventually(lambda: idle._reader.exception() is not None)
        assert await redis.ping()
        await pool.disconnect()
