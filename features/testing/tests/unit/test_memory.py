"""The store in memory: its clock, and what it leaves alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fakeredis.aioredis import FakeRedis

from features.testing.memory import Clock, connect, release


async def test_a_script_that_runs_without_memory_left_runs() -> None:
    redis: Any = connect(Clock())
    text = "#!lua flags=allow-oom\nreturn 1"
    sha = await redis.script_load(text)
    assert [await redis.evalsha(sha, 0), await redis.eval(text, 0), await redis.evalsha(sha, 0)] == [1, 1, 1]


async def test_commands_scripts_and_keys_go_by_the_clock() -> None:
    clock = Clock()
    redis: Any = connect(clock)
    await redis.set("short", 1, ex=60)
    before = await redis.time()
    clock.advance(minutes=2)
    assert (await redis.time())[0] - before[0] in (120, 121)
    assert int((await redis.eval("return redis.call('TIME')", 0))[0]) - before[0] in (120, 121)
    assert await redis.get("short") is None


async def test_other_servers_of_fakeredis_and_other_clocks_are_left_alone() -> None:
    clock, other = Clock(), Clock()
    mine, theirs, plain = connect(clock), connect(other), FakeRedis()
    await mine.set("key", 1)
    clock.advance(days=1)
    assert await theirs.get("key") is None
    moved, stayed, usual = [(await each.time())[0] for each in (mine, theirs, plain)]
    assert moved - stayed > 86_000
    assert usual - stayed <= 1
    assert clock.now - other.now > timedelta(hours=23)


async def test_the_next_test_has_the_server_and_nothing_of_what_was_there() -> None:
    clock = Clock()
    first: Any = connect(clock)
    await first.set("key", 1)
    clock.advance(days=1)
    release(first)
    second: Any = connect(Clock())
    assert second.connection_pool.connection_kwargs["server"] is first.connection_pool.connection_kwargs["server"]
    assert await second.dbsize() == 0
    assert (await first.time())[0] == (await second.time())[0]
