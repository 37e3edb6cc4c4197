"""Redis goes back: a power cut or a failover loses the newest writes, and workers remember what the store does not."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StaleLease
from palaver.leases import Delta, Lease
from palaver.models import Message
from palaver.verdicts import Continue
from tests.contract.desk import Desk, calls
from tests.contract.rewinding import rewind, snapshot


def answer(text: str) -> Continue:
    """The model says something and goes on."""
    return Continue(Message(role="assistant", content=text))


async def test_a_worker_whose_claim_was_lost_cannot_write_under_the_next_one(desk: Desk, redis: Any) -> None:
    submitted = await desk.submit()
    kept = await snapshot(redis)
    zombie = await desk.claim(submitted.deliveries[0], "w1")
    await rewind(redis, kept)
    lease = await desk.claim(submitted.deliveries[0], "w2")
    assert lease.fence > zombie.fence
    before = await desk.everything()
    for write in (desk.finish(zombie), desk.retry(zombie), desk.hand_back(zombie)):
        with pytest.raises(StaleLease):
            await write
    await desk.store.steps.feed([Delta(zombie, "late")])
    assert await desk.everything() == before
    await desk.finish(lease)


async def test_a_tool_that_was_begun_under_a_lost_claim_answers_nothing(desk: Desk, redis: Any) -> None:
    _, (delivery,) = await desk.turn("a", idempotent=["a"])
    kept = await snapshot(redis)
    zombie = await desk.claim(delivery, "w1")
    await rewind(redis, kept)
    lease = await desk.claim(delivery, "w1")
    with pytest.raises(StaleLease):
        await desk.answer(zombie, "old")
    await desk.answer(lease, "new")
    assert await desk.results(lease.run_id) == [("a", "new")]


async def test_a_worker_that_knows_what_was_lost_begins_anew(desk: Desk, redis: Any) -> None:
    """The log's positions are counted, so after a rewind others have them."""
    _, lease = await desk.begin()
    kept = await snapshot(redis)

    async def go_on(lease: Lease, *texts: str) -> Lease:
        for text in texts:
            (delivery,) = (await desk.store.steps.settle(lease, answer(text))).deliveries
            lease = await desk.claim(delivery)
        return lease

    forgotten = await go_on(lease, "lost")
    await rewind(redis, kept)
    newest = await go_on(lease, "one", "two")
    (delivery,) = (await desk.store.steps.settle(newest, answer("three"))).deliveries

    async def claimed(known: Lease, nonce: str) -> Lease:
        found = await desk.store.steps.claim(
            delivery.run_id,
            delivery.conversation_id,
            delivery.step,
            queue="model",
            worker="w1",
            nonce=nonce,
            known=known.position,
            known_at=known.position_at,
        )
        assert isinstance(found, Lease)
        return found

    lease = await claimed(forgotten, "n")
    assert (lease.rebuilt, desk.said(lease)) == (True, ["hello", "one", "two", "three"])
    again = await claimed(newest, "n")
    assert (again.rebuilt, desk.said(again)) == (False, ["three"])
    await desk.finish(lease)


async def test_a_worker_that_knows_more_than_there_is_begins_anew(desk: Desk, redis: Any) -> None:
    run_id, lease = await desk.begin()
    kept = await snapshot(redis)
    deliveries = await desk.ask(lease, "a", "b")
    for delivery in deliveries:
        await desk.answer(await desk.claim(delivery))
    (delivery,) = (await desk.attend(run_id, "2", unclaimed_after=-60))[0].deliveries
    ahead = await desk.claim(delivery)
    await rewind(redis, kept)
    (delivery,) = (await desk.hand_back(lease)).deliveries
    lease = await desk.claim(delivery, known=ahead.position)
    assert (lease.rebuilt, desk.said(lease)) == (True, ["hello"])
    await desk.store.steps.settle(lease, calls("a"))
