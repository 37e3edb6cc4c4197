"""Runs of one conversation take turns."""

from __future__ import annotations

from palaver.lifecycle import RunStatus, WaitReason
from palaver.models import AgentSpec
from palaver.store import keys
from tests.contract.desk import Desk


async def _waiting_for(desk: Desk, run_id: str) -> str | None:
    waiting = (await desk.get(run_id)).waiting
    assert waiting is not None
    assert waiting.reason is WaitReason.CONVERSATION_BUSY
    return waiting.run_id


async def test_runs_take_turns_in_the_order_they_came(desk: Desk) -> None:
    first, lease = await desk.begin(input="1")
    conversation_id = lease.conversation_id
    others = [(await desk.submit(str(i), conversation_id=conversation_id)) for i in (2, 3, 4)]
    assert [each.deliveries for each in others] == [(), (), ()]
    conversation = await desk.store.runs.conversation(conversation_id)
    assert (conversation.active_run, list(conversation.queued_runs)) == (
        first,
        [each.run_id for each in others],
    )

    texts = []
    for other in others:
        settled = await desk.finish(lease, text="ok")
        assert settled.next_run == other.run_id
        (started,) = await desk.attend(other.run_id, "start")
        lease = await desk.claim(started.deliveries[0], known=lease.position)
        texts.append([entry.message.content for entry in lease.entries])
    assert texts == [["ok", "2"], ["ok", "3"], ["ok", "4"]]
    assert (await desk.finish(lease)).next_run is None


async def test_a_crash_between_two_runs_loses_nothing(desk: Desk) -> None:
    _, lease = await desk.begin()
    second = await desk.submit(conversation_id=lease.conversation_id)
    await desk.finish(lease)

    found, _ = await desk.store.due.due()
    assert [(thing.run_id, thing.what) for thing in found] == [(second.run_id, "start")]
    (started,) = await desk.store.due.attend(found)
    assert [each.step for each in started.deliveries] == ["1"]
    assert (await desk.store.due.due())[0] == []


async def test_waking_twice_begins_once(desk: Desk) -> None:
    _, lease = await desk.begin()
    second = await desk.submit(conversation_id=lease.conversation_id)
    (nothing,) = await desk.attend(second.run_id, "start")
    assert nothing.deliveries == ()
    await desk.finish(lease)

    (started,) = await desk.attend(second.run_id, "start")
    (again,) = await desk.attend(second.run_id, "start")
    assert (len(started.deliveries), again.deliveries) == (1, ())
    assert (await desk.kinds(second.run_id)).count("message.created") == 1


async def test_cancel_in_the_middle_of_the_queue(desk: Desk) -> None:
    first, lease = await desk.begin()
    runs = [(await desk.submit(conversation_id=lease.conversation_id)).run_id for _ in range(3)]
    assert await _waiting_for(desk, runs[2]) == first

    settled = await desk.store.runs.cancel(runs[1])
    assert (settled.status, settled.next_run) == ("cancelled", None)
    conversation = await desk.store.runs.conversation(lease.conversation_id)
    assert conversation.queued_runs == (runs[0], runs[2])

    await desk.finish(lease)
    assert await _waiting_for(desk, runs[2]) == runs[0]
    settled = await desk.store.runs.cancel(runs[0])
    assert settled.next_run == runs[2]
    (started,) = await desk.attend(runs[2], "start")
    assert (await desk.get(runs[2])).status is RunStatus.QUEUED
    assert len(started.deliveries) == 1


async def test_a_queued_run_expires_in_its_place(desk: Desk) -> None:
    _, lease = await desk.begin()
    second = await desk.submit(conversation_id=lease.conversation_id)
    third = await desk.submit(conversation_id=lease.conversation_id)
    await desk.redis.hset(keys.run(second.run_id), "deadline", 2)
    (settled,) = await desk.hasten(second.run_id, "end")

    assert settled.status == "expired"
    assert (await desk.finish(lease)).next_run == third.run_id


async def test_a_failed_run_passes_the_turn_on(desk: Desk) -> None:
    _, lease = await desk.begin()
    second = await desk.submit(conversation_id=lease.conversation_id)

    assert (await desk.give_up(lease)).next_run == second.run_id
    outcome = (await desk.store.runs.conversation(lease.conversation_id)).last_outcome
    assert outcome is not None
    assert (outcome.run_id, outcome.status) == (lease.run_id, RunStatus.FAILED)


async def test_a_run_that_queues_begins_with_its_own_agent(desk: Desk) -> None:
    _, lease = await desk.begin()
    other = AgentSpec(model="fake/other")
    second = await desk.submit(conversation_id=lease.conversation_id, agent=other)
    await desk.finish(lease)
    (started,) = await desk.attend(second.run_id, "start")

    assert (await desk.claim(started.deliveries[0])).agent == other
