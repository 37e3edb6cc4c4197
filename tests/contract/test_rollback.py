"""What was rolled back is in the log, and no model is told of it: whoever knows it builds the conversation anew."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StateConflict
from palaver.schemas.models import Message
from palaver.steps.leases import Lease, LogMessage
from palaver.steps.verdicts import Condensed, Continue, Finish
from palaver.store.fleet.fleet import Interruption
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import StoreDriver, say
from tests.waiting import aeventually


async def _finished(driver: StoreDriver, *words: str) -> Lease:
    """A conversation with a finished run for each word; the last one's lease."""
    lease = None
    for word in words:
        _, lease = await driver.begin(input=word, conversation_id=lease and lease.conversation_id)
        await driver.finish(lease, text=f"{word}!")
    assert lease is not None
    return lease


async def _rolled_back(driver: StoreDriver, conversation_id: str, word: str = "oops") -> tuple[str, Lease]:
    """A run with a turn, withdrawn: its id, and the lease on its last step."""
    run_id, lease = await driver.begin(input=word, conversation_id=conversation_id)
    (delivery,) = await driver.ask(lease, "c1")
    (delivery,) = (await driver.answer(await driver.claim(delivery))).deliveries
    lease = await driver.claim(delivery)
    await driver.store.runs.cancel(run_id, mode="rollback")
    await driver.finish(lease)
    return run_id, lease


async def test_the_next_model_call_is_not_told_of_it(driver: StoreDriver) -> None:
    before = await _finished(driver, "one")
    run_id, _ = await _rolled_back(driver, before.conversation_id)

    _, lease = await driver.begin(input="two", conversation_id=before.conversation_id)
    assert driver.said(lease) == ["one", "one!", "two"]
    run = await driver.get(run_id)
    assert (run.status, run.stop_reason, run.withdrawn) == ("cancelled", "cancelled", True)
    log = await driver.log(run_id)
    assert {entry.withdrawn for entry in log if entry.run_id == run_id and "message" in entry.data} == {True}
    assert {entry.withdrawn for entry in log if entry.run_id != run_id} == {False}
    (told,) = [entry for entry in log if entry.type == "messages.withdrawn"]
    said = [entry.position for entry in log if entry.run_id == run_id and "message" in entry.data]
    assert told.data["first"] <= said[0]
    assert said[-1] <= told.data["last"] < told.position
    assert (await driver.kinds(run_id))[-2:] == ["messages.withdrawn", "run.finished"]


async def test_a_worker_that_knew_it_begins_anew_and_only_once(driver: StoreDriver) -> None:
    first = await _finished(driver, "one")
    _, lease = await _rolled_back(driver, first.conversation_id)
    positions = {
        "nothing": 0,
        "what was before": first.log.position,
        "some of it": lease.log.position - 1,
        "it": lease.log.position,
    }

    submitted = await driver.submit("two", conversation_id=first.conversation_id)
    for known in positions.values():
        again = await driver.claim(submitted.deliveries[0], known=known)
        assert again.log.rebuilt
        assert driver.said(again) == ["one", "one!", "two"]
        submitted = submitted.__class__(submitted.run_id, False, (await driver.hand_back(again)).deliveries)
    lease = await driver.claim(submitted.deliveries[0], known=again.log.position)
    assert (lease.log.rebuilt, lease.log.entries) == (False, ())
    (delivery,) = (await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    last = await driver.claim(delivery, known=again.log.position)
    assert (last.log.rebuilt, driver.said(last)) == (False, ["hm"])


async def test_a_worker_that_knew_it_derives_what_one_that_did_not_does(driver: StoreDriver) -> None:
    """R12: the log and what models are told agree, whoever derives it and whenever it began."""
    mine: list[LogMessage] = []
    conversation_id, position = None, 0
    for i in range(8):
        submitted = await driver.submit(f"word {i}", conversation_id=conversation_id)
        lease = await driver.claim(submitted.deliveries[0], known=position)
        mine = [*([] if lease.log.rebuilt else mine), *lease.log.entries]
        conversation_id, position = lease.conversation_id, lease.log.position
        assert mine == list((await driver.anew(lease)).log.entries)
        if i % 3 == 1:
            await driver.store.runs.cancel(submitted.run_id, mode="rollback")
        await driver.finish(lease, text=f"answer {i}")
    assert len([entry for entry in mine if entry.message.role == "user"]) == 6


async def test_several_parts_are_withdrawn(driver: StoreDriver) -> None:
    lease = await _finished(driver, "one")
    await _rolled_back(driver, lease.conversation_id)
    await _finished_in(driver, lease.conversation_id, "two")
    await _rolled_back(driver, lease.conversation_id)
    await _rolled_back(driver, lease.conversation_id)
    _, last = await driver.begin(input="three", conversation_id=lease.conversation_id)
    assert driver.said(last) == ["one", "one!", "two", "two!", "three"]


async def test_a_summary_that_the_run_made_is_withdrawn_with_it(driver: StoreDriver) -> None:
    first = await _finished(driver, "one", "two")
    run_id, lease = await driver.begin(input="oops", conversation_id=first.conversation_id)
    verdict = Continue(Message(role="assistant", content="hm"), notes=(Condensed("one and two", first.log.position),))
    (delivery,) = (await driver.store.steps.settle(lease, verdict)).deliveries
    again = await driver.claim(delivery, known=lease.log.position)
    assert [entry.through for entry in again.log.entries] == [first.log.position, 0]
    await driver.store.runs.cancel(run_id, mode="rollback")
    await driver.finish(again)

    _, lease = await driver.begin(input="three", conversation_id=first.conversation_id)
    assert driver.said(lease) == ["one", "one!", "two", "two!", "three"]
    assert [entry.through for entry in lease.log.entries] == [0] * 5


async def test_a_summary_from_before_stays(driver: StoreDriver) -> None:
    first = await _finished(driver, "one")
    _, lease = await driver.begin(input="two", conversation_id=first.conversation_id)
    verdict = Finish(
        Message(role="assistant", content="two!"), StopReason.END_TURN, notes=(Condensed("one", first.log.position),)
    )
    await driver.store.steps.settle(lease, verdict)
    await _rolled_back(driver, first.conversation_id)
    _, lease = await driver.begin(input="three", conversation_id=first.conversation_id)
    assert [(entry.message.content, entry.through) for entry in lease.log.entries] == [
        ("one", 0), ("one!", 0), ("two", 0), ("one", first.log.position), ("two!", 0), ("three", 0),
    ]  # fmt: skip


async def test_words_into_the_run_are_withdrawn_with_it(driver: StoreDriver) -> None:
    first = await _finished(driver, "one")
    run_id, lease = await driver.begin(input="oops", conversation_id=first.conversation_id)
    await driver.act(run_id, say("in metres"))
    await driver.store.runs.cancel(run_id, mode="rollback")
    await driver.finish(lease)
    _, lease = await driver.begin(input="two", conversation_id=first.conversation_id)
    assert driver.said(lease) == ["one", "one!", "two"]
    assert [entry.withdrawn for entry in await driver.log(run_id) if entry.data.get("steer")] == [True]


async def test_what_others_have_in_the_log_meanwhile_is_not_withdrawn(driver: StoreDriver) -> None:
    first = await _finished(driver, "one")
    run_id, lease = await driver.begin(input="oops", conversation_id=first.conversation_id)
    second, third = [await driver.submit(word, conversation_id=first.conversation_id) for word in ("two", "three")]
    await driver.store.runs.cancel(third.run_id)
    await driver.store.runs.cancel(run_id, mode="rollback")
    await driver.finish(lease)
    (entered,) = await driver.sweep(second.run_id, "start")
    assert driver.said(await driver.claim(entered.deliveries[0])) == ["one", "one!", "two"]
    withdrawn = {entry.run_id for entry in await driver.log(run_id) if entry.withdrawn}
    assert withdrawn == {run_id}


@pytest.mark.parametrize("state", ["ready", "queued"])
async def test_a_run_that_nobody_began(driver: StoreDriver, state: str) -> None:
    first = await _finished(driver, "one")
    if state == "queued":
        _, lease = await driver.begin(input="two", conversation_id=first.conversation_id)
    submitted = await driver.submit("oops", conversation_id=first.conversation_id)
    assert (await driver.store.runs.cancel(submitted.run_id, mode="rollback")).status == "cancelled"
    run = await driver.get(submitted.run_id)
    assert run.withdrawn == (state == "ready")
    assert run.cancel is not None
    assert run.cancel.mode == "rollback"
    if state == "queued":
        await driver.finish(lease, text="two!")
    _, lease = await driver.begin(input="three", conversation_id=first.conversation_id)
    assert driver.said(lease) == ["one", "one!", *(["two", "two!"] if state == "queued" else []), "three"]


async def test_a_stronger_cancel_takes_over_and_a_weaker_one_does_not(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    for mode, reason, kept in (
        ("graceful", "a", "graceful"), ("graceful", "b", "graceful"), ("rollback", "c", "rollback"),
        ("now", "d", "rollback"), ("graceful", "e", "rollback"),
    ):  # fmt: skip
        await driver.store.runs.cancel(run_id, mode=mode, reason=reason, by="alice", acked_ms=3)  # type: ignore[arg-type]
        cancel = (await driver.get(run_id)).cancel
        assert cancel is not None
        assert cancel.mode == kept
    assert cancel is not None
    assert (cancel.reason, cancel.by, cancel.acked_ms) == ("c", "alice", 3)
    told = [event.data for event in await driver.events(run_id) if event.type == "run.cancelling"]
    assert told == [
        {"mode": mode, "by": "alice", "reason": reason} for mode, reason in (("graceful", "a"), ("rollback", "c"))
    ]
    await driver.finish(lease)
    assert (await driver.get(run_id)).withdrawn


async def test_what_has_ended_is_not_rolled_back(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id)
    await driver.finish(lease)
    before = await redis.dump(keys.run(run_id))
    assert (await driver.store.runs.cancel(run_id, mode="rollback")).status == "cancelled"
    assert await redis.dump(keys.run(run_id)) == before
    done, lease = await driver.begin()
    await driver.finish(lease)
    with pytest.raises(StateConflict):
        await driver.store.runs.cancel(done, mode="rollback")


async def test_a_deadline_after_the_rollback_was_acknowledged(driver: StoreDriver, redis: Any) -> None:
    run_id, _ = await driver.begin()
    await driver.store.runs.cancel(run_id, mode="rollback")
    await redis.hset(keys.run(run_id), "deadline", 2)
    await driver.hasten(run_id, "end")
    run = await driver.get(run_id)
    assert (run.status, run.withdrawn) == ("cancelled", True)


async def test_an_answer_that_got_lost_withdraws_once(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    with driver.answers_get_lost():
        await driver.store.runs.cancel(submitted.run_id, mode="rollback")
    assert (await driver.kinds(submitted.run_id)).count("messages.withdrawn") == 1


async def test_graceful_keeps_what_is_under_way_and_begins_nothing(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2")
    lease = await driver.claim(deliveries[0])
    async with driver.hearing("w1") as heard:
        assert (await driver.store.runs.cancel(run_id, mode="graceful")).status == "cancelling"
        assert await driver.store.steps.renew([lease]) == [1]
        await driver.store.runs.cancel(run_id, mode="now")
        assert await driver.store.steps.renew([lease]) == [2]
        # Once: the graceful one, which came first, was not told.
        assert await aeventually(lambda: heard) == [Interruption(run_id, pausing=False)]
    assert (await driver.answer(lease)).status == "cancelled"
    assert (await driver.results(run_id))[0] == ("c1", "42")


async def _finished_in(driver: StoreDriver, conversation_id: str, word: str) -> None:
    _, lease = await driver.begin(input=word, conversation_id=conversation_id)
    await driver.finish(lease, text=f"{word}!")
