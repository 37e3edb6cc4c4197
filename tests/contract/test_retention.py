"""What is kept goes in time, all of it, and nothing goes that is still needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import StaleLease, UnknownRun
from palaver.filters import RunFilter
from palaver.leases import Delta
from palaver.lifecycle import StopReason
from palaver.models import Message, Retry
from palaver.settings import Settings
from palaver.store import Store, keys
from palaver.store.connection import now_ms
from palaver.store.reading import RunPage
from palaver.verdicts import Finish
from tests.contract.desk import Desk, approve, say

RETENTION = 3600


@pytest.fixture
def desk(redis: Any, settings: Settings) -> Desk:
    """A desk at a store that keeps what has ended for an hour, and would keep feeds for longer."""
    return Desk(Store(redis, settings.model_copy(update={"retention": RETENTION, "feed_retention": 7200.0})), redis)


async def _time_passes(desk: Desk) -> None:
    """The retention of all that has ended by now, and then a sweeper."""
    for name in await desk.redis.keys("*"):
        left = await desk.redis.ttl(name)
        assert left <= RETENTION
        if left > 0:
            await desk.redis.delete(name)
    ended = await desk.redis.zrange(keys.ended("00"), 0, -1, withscores=True)
    latest = await now_ms(desk.redis) + RETENTION * 1000
    assert all(score <= latest for _, score in ended)
    if ended:
        await desk.redis.zadd(keys.ended("00"), {run_id: 1 for run_id, _ in ended})
    assert await desk.store.due.forget_expired() == len(ended)


async def _runs_of_all_kinds(desk: Desk) -> list[str]:
    """Runs that all have ended; their ids."""
    completed, lease = await desk.begin(idempotency_key="k1")
    await desk.store.steps.feed([Delta(lease, "hi")])
    await desk.finish(lease)
    failed, lease = await desk.begin(conversation_id=lease.conversation_id)
    await desk.give_up(lease)
    again = await desk.store.control.retry(failed, Retry(from_step=1), idempotency_key="k2")
    await desk.store.control.act(again.run_id, [say("more")], idempotency_key="k3")
    await desk.finish(await desk.claim(again.deliveries[0]))
    asked, _ = await desk.turn("c1", approval=["c1"])
    await desk.act(asked, approve())
    await desk.store.runs.cancel(asked)
    scheduled = await desk.submit(start_after=datetime.now(UTC) + timedelta(hours=1))
    await desk.store.runs.cancel(scheduled.run_id)
    rolled_back, lease = await desk.begin()
    queued = await desk.submit(conversation_id=lease.conversation_id)
    await desk.store.runs.cancel(queued.run_id)
    await desk.store.runs.cancel(rolled_back, mode="rollback")
    await desk.finish(lease)
    late, lease = await desk.begin()
    await desk.retry(lease)
    await desk.hasten(late, "1")
    await desk.store.runs.cancel(late)
    deleted, lease = await desk.begin()
    await desk.finish(lease)
    await desk.store.control.delete_run(deleted)
    await desk.store.runs.create_conversation(None)
    return [completed, failed, again.run_id, asked, scheduled.run_id, rolled_back, queued.run_id, late]


async def test_everything_goes_and_no_list_shows_it(desk: Desk, redis: Any) -> None:
    runs = await _runs_of_all_kinds(desk)
    for run_id in runs:
        assert (await desk.get(run_id)).status.terminal, run_id
    await _time_passes(desk)
    assert await redis.keys("*") == []
    assert await desk.store.runs.list(RunFilter(), limit=10) == RunPage()


async def test_older_runs_of_a_conversation_in_use_go_before_it(desk: Desk, redis: Any) -> None:
    first, lease = await desk.begin(input="one")
    conversation = lease.conversation_id
    await desk.finish(lease)
    second, lease = await desk.begin(input="two", conversation_id=conversation)
    await _time_passes(desk)

    with pytest.raises(UnknownRun):
        await desk.get(first)
    assert [run.id for run in (await desk.store.runs.list(RunFilter(), limit=10)).runs] == [second]
    assert desk.said(await desk.anew(lease)) == ["one", "bye", "two"]
    await desk.finish(lease)
    await _time_passes(desk)
    assert await redis.keys("*") == []


async def test_a_run_that_takes_longer_than_the_retention_stays_in_the_list(desk: Desk, redis: Any) -> None:
    """It was submitted long ago: what counts is when it ended."""
    long, lease = await desk.begin()
    await redis.zadd(keys.runs("00"), {long: 1})
    await desk.submit()
    assert await desk.store.due.forget_expired() == 0
    listed = (await desk.store.runs.list(RunFilter(), limit=10)).runs
    assert long in {run.id for run in listed}
    await desk.finish(lease)


async def test_what_is_over_is_forgotten_part_by_part_and_nothing_else(desk: Desk, redis: Any) -> None:
    kept, lease = await desk.begin()
    await desk.finish(lease)
    expired = [f"run_00{number:026d}" for number in range(25)]
    await redis.zadd(keys.runs("00"), dict.fromkeys(expired, 5))
    await redis.zadd(keys.ended("00"), dict.fromkeys(expired, 9))
    assert [await desk.store.due.forget_expired(limit=10) for _ in range(4)] == [10, 10, 5, 0]
    assert await redis.zrange(keys.runs("00"), 0, -1) == [kept.encode()]
    assert await redis.zrange(keys.ended("00"), 0, -1) == [kept.encode()]


async def test_who_comes_late_to_a_run_that_is_gone_writes_nothing(desk: Desk, redis: Any) -> None:
    run_id, lease = await desk.begin()
    conversation = lease.conversation_id
    await desk.store.runs.cancel(run_id)
    await desk.hasten(run_id, "end")
    await desk.lose(lease)
    await desk.store.control.delete_conversation(conversation)
    assert await redis.keys("*") == []

    answer = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN)
    for late in (
        desk.store.steps.settle(lease, answer),
        desk.hand_back(lease),
    ):
        with pytest.raises(StaleLease):
            await late
    await desk.store.steps.feed([Delta(lease, "hi")])
    await desk.store.steps.renew([lease])
    await desk.attend(run_id, "1")
    await desk.attend(run_id, "end")
    with pytest.raises(UnknownRun):
        await desk.store.runs.cancel(run_id)
    with pytest.raises(UnknownRun):
        await desk.act(run_id, say("too late"))
    assert await redis.keys("*") == []
