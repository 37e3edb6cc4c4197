"""Runs of one conversation take turns."""

from __future__ import annotations

from palaver.schemas.models import AgentSpec
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import RunStatus, WaitReason
from tests.contract.store_driver import StoreDriver


async def _waiting_for(driver: StoreDriver, run_id: str) -> str | None:
    waiting = (await driver.get(run_id)).waiting
    assert waiting is not None
    assert waiting.reason is WaitReason.CONVERSATION_BUSY
    return waiting.run_id


async def test_runs_take_turns_in_the_order_they_came(driver: StoreDriver) -> None:
    first, lease = await driver.begin(input="1")
    conversation_id = lease.conversation_id
    others = [(await driver.submit(str(i), conversation_id=conversation_id)) for i in (2, 3, 4)]
    assert [each.deliveries for each in others] == [(), (), ()]
    conversation = await driver.store.runs.conversation(conversation_id)
    assert (conversation.active_run, list(conversation.queued_runs)) == (
        first,
        [each.run_id for each in others],
    )

    texts = []
    for other in others:
        settled = await driver.finish(lease, text="ok")
        assert settled.next_run == other.run_id
        (started,) = await driver.sweep(other.run_id, "start")
        lease = await driver.claim(started.deliveries[0], known=lease.log.position)
        texts.append([entry.message.content for entry in lease.log.entries])
    assert texts == [["ok", "2"], ["ok", "3"], ["ok", "4"]]
    assert (await driver.finish(lease)).next_run is None


async def test_a_crash_between_two_runs_loses_nothing(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)
    await driver.finish(lease)

    found, _ = await driver.store.due.due()
    assert [(thing.run_id, thing.what) for thing in found] == [(second.run_id, "start")]
    (started,) = await driver.store.due.sweep(found)
    assert [each.step for each in started.deliveries] == ["1"]
    assert (await driver.store.due.due())[0] == []


async def test_waking_twice_begins_once(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)
    (nothing,) = await driver.sweep(second.run_id, "start")
    assert nothing.deliveries == ()
    await driver.finish(lease)

    (started,) = await driver.sweep(second.run_id, "start")
    (again,) = await driver.sweep(second.run_id, "start")
    assert (len(started.deliveries), again.deliveries) == (1, ())
    assert (await driver.kinds(second.run_id)).count("message.created") == 1


async def test_cancel_in_the_middle_of_the_queue(driver: StoreDriver) -> None:
    first, lease = await driver.begin()
    runs = [(await driver.submit(conversation_id=lease.conversation_id)).run_id for _ in range(3)]
    assert await _waiting_for(driver, runs[2]) == first

    settled = await driver.store.runs.cancel(runs[1])
    assert (settled.status, settled.next_run) == ("cancelled", None)
    conversation = await driver.store.runs.conversation(lease.conversation_id)
    assert conversation.queued_runs == (runs[0], runs[2])

    await driver.finish(lease)
    assert await _waiting_for(driver, runs[2]) == runs[0]
    settled = await driver.store.runs.cancel(runs[0])
    assert settled.next_run == runs[2]
    (started,) = await driver.sweep(runs[2], "start")
    assert (await driver.get(runs[2])).status is RunStatus.QUEUED
    assert len(started.deliveries) == 1


async def test_a_queued_run_expires_in_its_place(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)
    third = await driver.submit(conversation_id=lease.conversation_id)
    await driver.redis.hset(keys.run(second.run_id), "deadline", 2)
    (settled,) = await driver.hasten(second.run_id, "end")

    assert settled.status == "expired"
    assert (await driver.finish(lease)).next_run == third.run_id


async def test_a_failed_run_passes_the_turn_on(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)

    assert (await driver.give_up(lease)).next_run == second.run_id
    outcome = (await driver.store.runs.conversation(lease.conversation_id)).last_outcome
    assert outcome is not None
    assert (outcome.run_id, outcome.status) == (lease.run_id, RunStatus.FAILED)


async def test_a_run_that_queues_begins_with_its_own_agent(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    other = AgentSpec(model="fake/other")
    second = await driver.submit(conversation_id=lease.conversation_id, agent=other)
    await driver.finish(lease)
    (started,) = await driver.sweep(second.run_id, "start")

    assert (await driver.claim(started.deliveries[0])).agent == other
