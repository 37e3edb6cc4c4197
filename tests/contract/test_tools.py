"""Which tools there are: sets of declarations that workers tell of, and that are forgotten with them, in time."""

from __future__ import annotations

import time
from typing import Any

from palaver.store.fleet.fleet import KNOWN_FOR, WorkerReport
from palaver.store.redis import fleet_keys
from palaver.tools import ToolDeclaration, ToolSet
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import StoreDriver


def tools(*names: str, description: str = "It is one.") -> ToolSet:
    return ToolSet.of(ToolDeclaration(name=name, description=description, timeout=5) for name in names)


async def names(driver: StoreDriver) -> list[list[str]]:
    """The tools of each set."""
    return [[each.name for each in found.tools] for found in (await driver.store.tools.declared()).values()]


async def test_workers_with_the_same_code_have_one_set(driver: StoreDriver, redis: Any) -> None:
    for _ in range(3):
        await driver.store.tools.publish(tools("b", "a"), ("model",))
        await driver.store.tools.publish(tools("a", "b"), ("model",))
    assert await names(driver) == [["a", "b"]]
    assert 0 < await redis.ttl(fleet_keys.tool_set(tools("a", "b").digest)) <= limit_of("tools_remembered")


async def test_two_versions_are_known_and_the_one_seen_last_comes_first(driver: StoreDriver, redis: Any) -> None:
    old, new = tools("a"), tools("a", description="It is another one.")
    await driver.store.tools.publish(new, ("model",))
    await driver.store.tools.publish(old, ("model",))
    await redis.zadd(fleet_keys.TOOL_SETS, {f"{old.digest} model": 1})
    found = await driver.store.tools.declared()
    assert list(found) == [new.digest, old.digest]
    assert [each.tools[0].description for each in found.values()] == ["It is another one.", "It is one."]


async def test_it_is_known_since_when_a_set_is_there_and_in_which_queues(driver: StoreDriver, redis: Any) -> None:
    await driver.store.tools.publish(tools("a"), ("model",))
    (first,) = (await driver.store.tools.declared()).values()
    assert first.queues == {"model"}
    assert abs(first.since.timestamp() - time.time()) < 60
    await redis.zadd(fleet_keys.TOOL_SETS, {f"{tools('a').digest} model": time.time() - 100})
    await driver.store.tools.publish(tools("a"), ("tools",))
    (later,) = (await driver.store.tools.declared()).values()
    assert later.queues == {"model", "tools"}
    assert later.since == first.since


async def test_who_knows_a_set_does_not_read_it_again(driver: StoreDriver, redis: Any) -> None:
    await driver.store.tools.publish(tools("a"), ("model",))
    known = await driver.store.tools.declared()
    await redis.set(fleet_keys.tool_set(tools("a").digest), b"nobody reads this", ex=60)
    await driver.store.tools.publish(tools("b"), ("tools",))
    found = await driver.store.tools.declared(known)
    assert [[each.name for each in one.tools] for one in found.values()] in ([["a"], ["b"]], [["b"], ["a"]])
    await redis.zrem(fleet_keys.TOOL_SETS, f"{tools('a').digest} model")
    assert [*await driver.store.tools.declared(found)] == [tools("b").digest], "one that is gone is forgotten"


async def test_what_no_worker_has_had_for_an_hour_is_forgotten(driver: StoreDriver, redis: Any) -> None:
    await driver.store.tools.publish(tools("gone"), ("model",))
    await redis.zadd(fleet_keys.TOOL_SETS, {f"{tools('gone').digest} model": 1})
    await driver.store.tools.publish(tools("here"), ("model",))
    assert await names(driver) == [["here"]]
    assert not await redis.exists(fleet_keys.tool_set(tools("gone").digest))


async def test_what_another_queue_has_still_stays(driver: StoreDriver, redis: Any) -> None:
    await driver.store.tools.publish(tools("both"), ("model", "tools"))
    await redis.zadd(fleet_keys.TOOL_SETS, {f"{tools('both').digest} model": 1})
    await driver.store.tools.publish(tools("here"), ("model",))
    assert sorted(await names(driver)) == [["both"], ["here"]]


async def test_a_queue_whose_tools_change_all_the_time_hides_none_of_others(driver: StoreDriver, redis: Any) -> None:
    await driver.store.tools.publish(tools("other"), ("other",))
    await redis.zadd(fleet_keys.TOOL_SETS, {f"{tools('other').digest} other": time.time() - 100})
    for version in range(limit_of("tool_sets") + 2):
        await driver.store.tools.publish(tools("a", description=str(version)), ("model",))
    assert ["other"] in await names(driver)
    assert len(await names(driver)) == limit_of("tool_sets")


async def test_what_the_last_workers_of_a_queue_had_stays_known(driver: StoreDriver, redis: Any) -> None:
    old, long_ago = tools("old"), time.time() - KNOWN_FOR - 60
    await driver.store.tools.publish(old, ("tools",))
    await driver.store.tools.publish(tools("other"), ("model",))
    await redis.zadd(fleet_keys.TOOL_SETS, {f"{old.digest} tools": long_ago})
    await driver.store.tools.publish(tools("other"), ("model",))
    assert await names(driver) == [["other"], ["old"]]
    found = await driver.store.tools.declared()
    assert abs(found[old.digest].seen_at.timestamp() - long_ago) < 1
    await driver.store.tools.publish(tools("new"), ("tools",))
    assert sorted(await names(driver)) == [["new"], ["other"]]


async def test_not_for_ever(driver: StoreDriver, redis: Any) -> None:
    old = tools("old")
    await driver.store.tools.publish(old, ("tools",))
    await redis.zadd(fleet_keys.TOOL_SETS, {f"{old.digest} tools": time.time() - limit_of("tools_remembered") - 60})
    await driver.store.tools.publish(tools("other"), ("model",))
    assert await names(driver) == [["other"]]


async def test_a_set_whose_text_is_lost_comes_with_the_next_heartbeat(driver: StoreDriver, redis: Any) -> None:
    await driver.store.tools.publish(tools("a"), ("model",))
    await redis.delete(fleet_keys.tool_set(tools("a").digest))
    assert await names(driver) == []
    await driver.store.tools.publish(tools("a"), ("model",))
    assert await names(driver) == [["a"]]


async def test_there_is_a_most_of_versions(driver: StoreDriver) -> None:
    for version in range(limit_of("tool_sets") + 2):
        await driver.store.tools.publish(tools("a", description=str(version)), ("model",))
    assert len(await names(driver)) == limit_of("tool_sets")


async def test_a_worker_says_which_set_is_its_own(driver: StoreDriver) -> None:
    report = WorkerReport("w1", ("tools",), in_flight=0, capacity=1, draining=False, tools=tools("a").digest)
    await driver.store.fleet.report(report)
    assert await driver.store.fleet.workers() == [report]
