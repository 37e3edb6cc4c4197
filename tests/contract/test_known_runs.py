"""A run that is read again is as it is now, and is not made anew if it is as it was."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.store.reading import known_runs
from palaver.store.redis import keys
from tests.contract.store_driver import StoreDriver


async def test_a_run_that_is_as_it_was_is_not_made_again(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    first = await driver.store.runs.get(run_id)
    assert await driver.store.runs.get(run_id) is first
    await driver.finish(lease)
    ended = await driver.store.runs.get(run_id)
    assert (first.status, ended.status) == ("running", "completed")
    assert await driver.store.runs.get(run_id) is ended


async def test_every_change_is_seen(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    before = await driver.store.runs.get(run_id)
    for name, value in (("output", "now"), ("tags", '["one"]'), ("events", "1000")):
        was = await redis.hget(keys.run(run_id), name)
        await redis.hset(keys.run(run_id), name, value)
        now = await driver.store.runs.get(run_id)
        assert now != before
        await (redis.hset(keys.run(run_id), name, was) if was else redis.hdel(keys.run(run_id), name))
        assert await driver.store.runs.get(run_id) == before
    await driver.finish(lease)


async def test_who_is_ahead_is_looked_up_each_time(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    conversation_id = (await driver.store.runs.get(run_id)).conversation_id
    behind = await driver.submit(conversation_id=conversation_id)
    first = await driver.store.runs.get(behind.run_id)
    assert first.waiting is not None
    assert first.waiting.run_id == run_id
    assert await driver.store.runs.get(behind.run_id) is not first
    await driver.finish(lease)


async def test_so_many_are_kept_and_no_large_ones(driver: StoreDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_runs, "_RUNS", 2)
    runs = [(await driver.submit()).run_id for _ in range(3)]
    made = [await driver.store.runs.get(run_id) for run_id in runs]
    assert len(driver.store.runs._known._runs) == 2
    assert await driver.store.runs.get(runs[0]) is not made[0]
    monkeypatch.setattr(known_runs, "_LARGE", 10)
    large = (await driver.submit()).run_id
    assert await driver.store.runs.get(large) is not await driver.store.runs.get(large)
