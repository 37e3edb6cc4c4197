"""Redis goes back: a power cut or a failover loses the newest writes, and workers remember what the store does not."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StaleLease
from palaver.schemas.models import Message, Usage
from palaver.steps.leases import Delta, Lease
from palaver.steps.verdicts import Continue, Finish
from palaver.store import Store
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.rewinding import rewind, snapshot
from tests.contract.store_driver import StoreDriver, calls


def answer(text: str) -> Continue:
    """The model says something and goes on."""
    return Continue(Message(role="assistant", content=text))


async def test_a_worker_whose_claim_was_lost_cannot_write_under_the_next_one(driver: StoreDriver, redis: Any) -> None:
    submitted = await driver.submit()
    kept = await snapshot(redis)
    zombie = await driver.claim(submitted.deliveries[0], "w1")
    await rewind(redis, kept)
    lease = await driver.claim(submitted.deliveries[0], "w2")
    assert lease.fence > zombie.fence
    before = await driver.everything()
    for write in (driver.finish(zombie), driver.retry(zombie), driver.hand_back(zombie)):
        with pytest.raises(StaleLease):
            await write
    await driver.store.steps.write_deltas([Delta(zombie, "late")])
    assert await driver.everything() == before
    await driver.finish(lease)


async def test_a_tool_that_was_begun_under_a_lost_claim_answers_nothing(driver: StoreDriver, redis: Any) -> None:
    _, (delivery,) = await driver.turn("a", idempotent=["a"])
    kept = await snapshot(redis)
    zombie = await driver.claim(delivery, "w1")
    await rewind(redis, kept)
    lease = await driver.claim(delivery, "w1")
    with pytest.raises(StaleLease):
        await driver.answer(zombie, "old")
    await driver.answer(lease, "new")
    assert await driver.results(lease.run_id) == [("a", "new")]


async def test_a_cancel_that_was_lost_ends_no_run(driver: StoreDriver) -> None:
    """The worker has heard of it, and lets the step go: the store knows of none, and the run goes on."""
    run_id, lease = await driver.begin()
    usage = Usage(model_calls=1, input_tokens=9)
    partial = Message(role="assistant", content="cut", partial=True)
    settled = await driver.store.steps.settle(lease, Finish(partial, StopReason.CANCELLED, usage=usage))
    assert settled.status == "running"
    (delivery,) = settled.deliveries
    again = await driver.claim(delivery, "w2")
    assert (again.attempt, "cut" in str(driver.said(again))) == (1, False)
    await driver.finish(again)
    run = await driver.get(run_id)
    assert (run.status, run.usage.input_tokens) == ("completed", 9)


async def test_a_tool_that_a_lost_cancel_stopped_is_not_begun_again(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("a")
    lease = await driver.claim(delivery)
    await driver.store.steps.settle(lease, Finish(None, StopReason.CANCELLED))
    ((call, told),) = await driver.results(run_id)
    assert (call, "may or may not" in told) == ("a", True)
    assert (await driver.get(run_id)).status == "running"


async def test_a_worker_that_knows_what_was_lost_begins_anew(driver: StoreDriver, redis: Any) -> None:
    """The log's positions are counted, so after a rewind others have them."""
    _, lease = await driver.begin()
    kept = await snapshot(redis)

    async def go_on(lease: Lease, *texts: str) -> Lease:
        for text in texts:
            (delivery,) = (await driver.store.steps.settle(lease, answer(text))).deliveries
            lease = await driver.claim(delivery)
        return lease

    forgotten = await go_on(lease, "lost")
    await rewind(redis, kept)
    newest = await go_on(lease, "one", "two")
    (delivery,) = (await driver.store.steps.settle(newest, answer("three"))).deliveries

    async def claimed(known: Lease, nonce: str) -> Lease:
        found = await driver.store.steps.claim(
            delivery.run_id,
            delivery.conversation_id,
            delivery.step,
            queues=("model",),
            worker="w1",
            nonce=nonce,
            known=known.log.position,
            known_at=known.log.position_at,
        )
        assert isinstance(found, Lease)
        return found

    lease = await claimed(forgotten, "n")
    assert (lease.log.rebuilt, driver.said(lease)) == (True, ["hello", "one", "two", "three"])
    again = await claimed(newest, "n")
    assert (again.log.rebuilt, driver.said(again)) == (False, ["three"])
    await driver.finish(lease)


async def test_a_first_claim_looks_at_what_its_worker_knows(driver: StoreDriver) -> None:
    """Although it writes the entry behind that itself."""
    (delivery,) = (await driver.submit()).deliveries
    (at,) = await driver.redis.xrange(keys.log(delivery.conversation_id), "2-0", "2-0")
    lost = await driver.store.steps.claim(
        delivery.run_id,
        delivery.conversation_id,
        "1",
        queues=("model",),
        worker="w1",
        nonce="n",
        known=2,
        known_at=int(at[1][b"at"]) - 1,
    )
    assert isinstance(lost, Lease)
    assert (lost.log.position, lost.log.rebuilt, driver.said(lost)) == (3, True, ["hello"])


async def test_a_worker_that_knows_more_than_there_is_begins_anew(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    kept = await snapshot(redis)
    deliveries = await driver.ask(lease, "a", "b")
    for delivery in deliveries:
        await driver.answer(await driver.claim(delivery))
    (delivery,) = (await driver.sweep(run_id, "2", unclaimed_after=-60))[0].deliveries
    ahead = await driver.claim(delivery)
    await rewind(redis, kept)
    (delivery,) = (await driver.hand_back(lease)).deliveries
    lease = await driver.claim(delivery, known=ahead.log.position)
    assert (lease.log.rebuilt, driver.said(lease)) == (True, ["hello"])
    await driver.store.steps.settle(lease, calls("a"))


async def test_a_store_that_lost_something_is_noticed(driver: StoreDriver, store: Store, redis: Any) -> None:
    """As after a restart that dropped what scripts had written: whoever had seen more says so, once."""
    await driver.finish((await driver.begin())[1])
    kept = await snapshot(redis)
    assert await store.rewinds.look() is None
    await driver.finish((await driver.begin())[1])
    assert await store.rewinds.look() is None
    assert await store.rewinds.last() is None
    # Somebody had named it before the copy was made.
    kept[keys.generation().encode()] = (await snapshot(redis))[keys.generation().encode()]
    await rewind(redis, kept)
    found = await store.rewinds.look()
    assert found is not None
    assert (found.runs, found.steps, found.replaced) == (1, 1, False)
    assert await store.rewinds.last() == found
    assert await store.rewinds.look() is None


async def test_a_store_that_is_another_one_is_noticed(
    driver: StoreDriver, store: Store, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await driver.submit()
    await store.rewinds.look()
    await redis.flushall()
    await driver.submit()
    found = await store.rewinds.look()
    assert found is not None
    assert found.replaced
    assert (await store.measuring.read(()))["palaver_store_rewound_timestamp_seconds"] == {(): found.at}
    assert "it is another store than before" in caplog.text


async def test_what_is_deleted_is_not_lost(driver: StoreDriver, store: Store) -> None:
    run_id, lease = await driver.begin()
    await store.rewinds.look()
    await driver.finish(lease)
    await store.control.delete_run(run_id)
    assert await store.rewinds.look() is None
