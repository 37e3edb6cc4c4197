"""The eye on slots that all tests of the store have: it sees what a cluster refuses, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from features.stack.redis_server import RedisServer
from tests.contract.slots import crossings, tags_of, watched_scripts
from tests.redis_cluster import ON_CLUSTER


@pytest.mark.parametrize(
    ("command", "tags"),
    [
        (("HSET", "{p00}:run:x", "a", "{p01}"), {"p00"}),
        (("EVALSHA", "sha", 2, "{p00}:a", b"{p01}:b", "{p02}"), {"p00", "p01"}),
        (("UNLINK", "{p00}:a", "b"), {"p00", "b"}),
        (("MEMORY USAGE", "{p00}:a"), {"p00"}),
        (("GET", "{}:a"), {"{}:a"}),
        (("INFO", "memory"), set()),
    ],
)
def test_the_keys_of_a_command_are_known(command: tuple[Any, ...], tags: set[str]) -> None:
    assert tags_of(command) == tags


async def test_one_slot_is_as_a_cluster_wants_it(redis: Any) -> None:
    await redis.delete("{a}:1", "{a}:2")
    await redis.eval("redis.call('DEL', KEYS[1], '{a}:2') return redis.call('PUBLISH', '{a}:3', '')", 1, "{a}:1")
    pipeline = redis.pipeline(transaction=False)
    await pipeline.get("{a}:1").get("{b}:1").execute()
    await redis.pipeline(transaction=False).time().get("{a}:1").execute()
    assert crossings == []


@pytest.mark.skipif(ON_CLUSTER, reason="its client refuses that")
async def test_a_command_over_two_slots_is_seen(redis: Any) -> None:
    await redis.delete("{a}:1", "{b}:1")
    assert crossings == ["DEL is about several slots: ['a', 'b']"]
    crossings.clear()


@pytest.mark.skipif(ON_CLUSTER, reason="its client refuses that")
async def test_a_transaction_over_two_slots_is_seen(redis: Any) -> None:
    await redis.pipeline(transaction=True).get("{a}:1").get("{b}:1").execute()
    assert crossings == ["a transaction is about several slots: ['a', 'b']"]
    crossings.clear()


async def test_a_command_without_a_key_among_those_of_two_slots_is_seen(redis: Any) -> None:
    await redis.pipeline(transaction=False).get("{a}:1").get("{b}:1").time().execute()
    assert crossings == ["TIME may be carried out by the server of any of ['a', 'b']"]
    crossings.clear()


@pytest.mark.skipif(ON_CLUSTER, reason="it is looked at on one server")
@pytest.mark.parametrize("call", ["'GET', '{b}:1'", "'PUBLISH', '{b}:1', ''", "'UNLINK', KEYS[1], '{b}:1'"])
async def test_a_script_that_leaves_its_slot_is_seen(redis: Any, server: RedisServer, call: str) -> None:
    with watched_scripts(server.url):
        await redis.eval(f"return redis.call({call})", 1, "{a}:1")
    (crossing,) = crossings
    assert crossing.startswith("a script about b'{a}:1' calls")
    assert crossing.endswith("b'{b}:1'")
    crossings.clear()
