"""What is kept goes in time, all of it, and nothing goes that is still needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.errors import StaleLease, UnknownRun
from palaver.schemas.conversation import NewConversation
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import Message, Retry
from palaver.steps.leases import Delta
from palaver.steps.verdicts import Finish
from palaver.store import Store
from palaver.store.reading.listing import RunPage
from palaver.store.redis import keys
from palaver.store.redis.connection import now_ms
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import StoreDriver, approve, say

RETENTION = 3600


@pytest.fixture
def driver(redis: Any, settings: Settings) -> StoreDriver:
    """A driver of a store that keeps what has ended for an hour, and would keep feeds for longer."""
    return StoreDriver(
        Store(redis, settings.model_copy(update={"retention": RETENTION, "feed_retention": 7200.0})), redis
    )


async def _time_passes(driver: StoreDriver) -> None:
    """The retention of all that has ended by now, and then a sweeper."""
    for name in await driver.redis.keys("*"):
        left = await driver.redis.ttl(name)
        assert left <= RETENTION
        if left > 0:
            await driver.redis.delete(name)
    ended = await driver.redis.zrange(keys.ended("00"), 0, -1, withscores=True)
    latest = await now_ms(driver.redis) + RETENTION * 1000
    assert all(score <= latest for _, score in ended)
    if ended:
        await driver.redis.zadd(keys.ended("00"), {run_id: 1 for run_id, _ in ended})
    assert await driver.store.due.forget_expired() == len(ended)
    expiring = await driver.redis.zrange(keys.expiring("00"), 0, -1, withscores=True)
    assert all(score <= latest for _, score in expiring)
    if expiring:
        await driver.redis.zadd(keys.expiring("00"), {each: 1 for each, _ in expiring})
    assert await driver.store.due.forget_conversations() == len(expiring)


async def _runs_of_all_kinds(driver: StoreDriver) -> list[str]:
    """Runs that all have ended; their ids."""
    completed, lease = await driver.begin(idempotency_key="k1")
    await driver.store.steps.write_deltas([Delta(lease, "hi")])
    await driver.finish(lease)
    failed, lease = await driver.begin(conversation_id=lease.conversation_id)
    await driver.give_up(lease)
    again = await driver.store.control.retry(failed, Retry(from_step=1), idempotency_key="k2")
    await driver.store.control.act(again.run_id, [say("more")], idempotency_key="k3")
    await driver.finish(await driver.claim(again.deliveries[0]))
    asked, _ = await driver.turn("c1", approval=["c1"])
    await driver.act(asked, approve())
    await driver.store.runs.cancel(asked)
    scheduled = await driver.submit(start_after=datetime.now(UTC) + timedelta(hours=1))
    await driver.store.runs.cancel(scheduled.run_id)
    rolled_back, lease = await driver.begin()
    queued = await driver.submit(conversation_id=lease.conversation_id)
    await driver.store.runs.cancel(queued.run_id)
    await driver.store.runs.cancel(rolled_back, mode="rollback")
    await driver.finish(lease)
    late, lease = await driver.begin()
    await driver.retry(lease)
    await driver.hasten(late, "1")
    await driver.store.runs.cancel(late)
    deleted, lease = await driver.begin()
    await driver.finish(lease)
    await driver.store.control.delete_run(deleted)
    await driver.store.conversations.begin(NewConversation())
    return [completed, failed, again.run_id, asked, scheduled.run_id, rolled_back, queued.run_id, late]


@pytest.mark.slow
async def test_everything_goes_and_no_list_shows_it(driver: StoreDriver, redis: Any) -> None:
    runs = await _runs_of_all_kinds(driver)
    for run_id in runs:
        assert (await driver.get(run_id)).status.terminal, run_id
    await _time_passes(driver)
    assert await driver.everything() == {}
    assert await driver.store.runs.list(RunFilter(), limit=10) == RunPage()


async def test_older_runs_of_a_conversation_in_use_go_before_it(driver: StoreDriver, redis: Any) -> None:
    first, lease = await driver.begin(input="one")
    conversation = lease.conversation_id
    await driver.finish(lease)
    second, lease = await driver.begin(input="two", conversation_id=conversation)
    await _time_passes(driver)

    with pytest.raises(UnknownRun):
        await driver.get(first)
    assert [run.id for run in (await driver.store.runs.list(RunFilter(), limit=10)).runs] == [second]
    assert driver.said(await driver.anew(lease)) == ["one", "bye", "two"]
    await driver.finish(lease)
    await _time_passes(driver)
    assert await driver.everything() == {}


async def test_a_run_that_takes_longer_than_the_retention_stays_in_the_list(driver: StoreDriver, redis: Any) -> None:
    """It was submitted long ago: what counts is when it ended."""
    long, lease = await driver.begin()
    created = await redis.zscore(keys.runs("00"), long)
    await redis.zadd(keys.runs("00"), {long: 1})
    await driver.submit()
    assert await driver.store.due.forget_expired() == 0
    listed = (await driver.store.runs.list(RunFilter(), limit=10)).runs
    assert long in {run.id for run in listed}
    await driver.finish(lease)
    await redis.zadd(keys.runs("00"), {long: created})


async def test_what_is_over_is_forgotten_part_by_part_and_nothing_else(driver: StoreDriver, redis: Any) -> None:
    kept, lease = await driver.begin()
    await driver.finish(lease)
    expired = [f"run_00{number:026d}" for number in range(25)]
    for listed in (None, "failed"):
        await redis.zadd(keys.runs("00", listed), dict.fromkeys(expired, 5))
    await redis.zadd(keys.ended("00"), dict.fromkeys(expired, 9))
    assert [await driver.store.due.forget_expired(limit=10) for _ in range(4)] == [10, 10, 5, 0]
    assert await redis.zrange(keys.runs("00"), 0, -1) == [kept.encode()]
    assert await redis.zrange(keys.ended("00"), 0, -1) == [kept.encode()]
    assert await redis.zrange(keys.runs("00", "completed"), 0, -1) == [kept.encode()]
    assert not await redis.exists(keys.runs("00", "failed"))


async def test_who_comes_late_to_a_run_that_is_gone_writes_nothing(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    conversation = lease.conversation_id
    await driver.store.runs.cancel(run_id)
    await driver.hasten(run_id, "end")
    await driver.lose(lease)
    await driver.store.control.delete_conversation(conversation)
    assert await driver.everything() == {}

    answer = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN)
    for late in (
        driver.store.steps.settle(lease, answer),
        driver.hand_back(lease),
    ):
        with pytest.raises(StaleLease):
            await late
    await driver.store.steps.write_deltas([Delta(lease, "hi")])
    await driver.store.steps.renew([lease])
    await driver.sweep(run_id, "1")
    await driver.sweep(run_id, "end")
    with pytest.raises(UnknownRun):
        await driver.store.runs.cancel(run_id)
    with pytest.raises(UnknownRun):
        await driver.act(run_id, say("too late"))
    assert await driver.everything() == {}
