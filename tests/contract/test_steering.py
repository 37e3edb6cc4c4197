"""The user's words into a run that is going on: never lost, seen by the next model call, never inside an open turn."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StateConflict
from palaver.schemas.models import AgentSpec, Message
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.contract.store_driver import PAUSE, RESUME, StoreDriver, approve, output, say

ONE_STEP = AgentSpec(model="fake/echo", max_steps=1)


async def _steered(driver: StoreDriver, run_id: str) -> list[str]:
    """The user's words into the run that are in the log."""
    return [entry.data["message"]["content"] for entry in await driver.log(run_id) if entry.data.get("steer")]


async def test_a_step_that_nobody_began_sees_it(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    acted = await driver.act(submitted.run_id, say("in metres"), say("please"))

    assert (acted.settled.status, acted.settled.deliveries) == ("queued", ())
    created = (await driver.events(submitted.run_id))[-2]
    assert (created.data["steer"], created.data["message"]["content"]) == (True, "in metres")
    lease = await driver.claim(submitted.deliveries[0])
    assert driver.said(lease) == ["hello", "in metres", "please"]


async def test_a_worker_that_knows_the_conversation_is_told_it(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    (delivery,) = (await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    await driver.act(run_id, say("in metres"))
    again = await driver.claim(delivery, known=lease.log.position)
    assert driver.said(again) == ["hm", "in metres"]


@pytest.mark.parametrize("brings", ["retry", "postponed", "handed back", "lost"])
async def test_a_call_that_is_made_again_sees_it(driver: StoreDriver, brings: str) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, say("in metres"))
    assert await _steered(driver, run_id) == []
    match brings:
        case "retry":
            await driver.retry(lease)
        case "postponed":
            await driver.postpone(lease)
        case "handed back":
            settled = await driver.hand_back(lease)
        case _:
            (settled,) = await driver.lose(lease)
    if brings in ("retry", "postponed"):
        await driver.act(run_id, say("please"))
        (settled,) = await driver.hasten(run_id, "1")
        assert driver.said(await driver.claim(settled.deliveries[0])) == ["hello", "in metres", "please"]
    else:
        assert driver.said(await driver.claim(settled.deliveries[0])) == ["hello", "in metres"]


async def test_it_waits_for_the_results_of_the_turn(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, say("one"))
    (delivery,) = await driver.ask(lease, "c1", "p1", "o1", approval=["p1"], client=["o1"])
    await driver.act(run_id, say("two"))
    tool = await driver.claim(delivery)
    await driver.act(run_id, say("three"))
    await driver.answer(tool)
    acted = await driver.act(run_id, say("four"))
    assert acted.settled.status == "requires_action"
    assert await _steered(driver, run_id) == []

    acted = await driver.act(run_id, output("o1"), approve())
    (delivery,) = (await driver.answer(await driver.claim(acted.settled.deliveries[0]))).deliveries
    lease = await driver.claim(delivery)
    assert (driver.said(lease))[1:] == ["let me see", "42", "seen", "42", "one", "two", "three", "four"]


async def test_a_model_that_is_just_finishing_goes_on(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, say("and in feet?"))
    settled = await driver.finish(lease, text="3 m")

    assert settled.status == "running"
    assert (await driver.get(run_id)).output is None
    again = await driver.claim(settled.deliveries[0])
    assert (again.step, driver.said(again)) == ("2", ["hello", "3 m", "and in feet?"])
    await driver.finish(again, text="10 ft")
    run = await driver.get(run_id)
    assert (run.status, run.output) == (RunStatus.COMPLETED, "10 ft")


async def test_a_finish_whose_answer_was_lost_goes_on_once(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    with driver.answers_get_lost():
        await driver.act(run_id, say("and in feet?"))
        settled = await driver.finish(lease)
    assert [each.step for each in settled.deliveries] == ["2"]
    assert await _steered(driver, run_id) == ["and in feet?"]


@pytest.mark.parametrize("reason", [StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER])
async def test_an_answer_that_was_cut_off_ends_the_run(driver: StoreDriver, reason: StopReason) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, say("go on"))
    assert (await driver.finish(lease, reason)).status == "incomplete"
    assert await _steered(driver, run_id) == ["go on"]


@pytest.mark.parametrize("tools", [False, True])
async def test_at_the_last_step_it_is_in_the_log(driver: StoreDriver, tools: bool) -> None:
    run_id, lease = await driver.begin(agent=ONE_STEP)
    await driver.act(run_id, say("go on"))
    settled = await driver.finish(lease) if not tools else None
    if tools:
        (delivery,) = await driver.ask(lease, "c1")
        settled = await driver.answer(await driver.claim(delivery))
    assert settled is not None
    assert settled.status == "incomplete"
    assert await _steered(driver, run_id) == ["go on"]
    _, lease = await driver.begin(input="now", conversation_id=lease.conversation_id)
    assert (driver.said(lease))[-2:] == ["go on", "now"]


@pytest.mark.parametrize("ends", ["cancelled", "failed", "expired", "cancelled at once"])
async def test_whatever_ends_the_run_it_is_in_the_log(driver: StoreDriver, redis: Any, ends: str) -> None:
    run_id, (delivery,) = await driver.turn("c1", "p1", approval=["p1"])
    tool = await driver.claim(delivery)
    await driver.act(run_id, say("stop it"))
    match ends:
        case "cancelled":
            await driver.store.runs.cancel(run_id)
            assert await _steered(driver, run_id) == []
            await driver.answer(tool)
        case "failed":
            await driver.give_up(tool)
        case "expired":
            await redis.hset(f"{{p00}}:run:{run_id}", "deadline", 2)
            await driver.hasten(run_id, "end")
        case _:
            await driver.hand_back(tool, begun=False)
            await driver.store.runs.cancel(run_id)
    run = await driver.get(run_id)
    assert run.status == ends.split()[0]
    assert await _steered(driver, run_id) == ["stop it"]
    said = [entry.type for entry in await driver.log(run_id) if "message" in entry.data]
    assert said[-3:] == ["tool.finished", "tool.finished", "message.created"]


async def test_into_a_paused_run(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    await driver.act(submitted.run_id, PAUSE)
    await driver.act(submitted.run_id, say("in metres"))
    assert await _steered(driver, submitted.run_id) == ["in metres"]
    acted = await driver.act(submitted.run_id, RESUME)
    assert driver.said(await driver.claim(acted.settled.deliveries[0])) == ["hello", "in metres"]


async def test_a_model_that_is_just_finishing_while_the_run_is_to_pause(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, PAUSE, say("and in feet?"))
    assert (await driver.finish(lease)).status == "paused"
    acted = await driver.act(run_id, RESUME)
    assert driver.said(await driver.claim(acted.settled.deliveries[0])) == ["hello", "bye", "and in feet?"]


async def test_into_a_run_that_queues(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    second = await driver.submit("second", conversation_id=lease.conversation_id)
    await driver.act(second.run_id, say("in metres"))
    assert await _steered(driver, second.run_id) == []
    await driver.finish(lease)
    (entered,) = await driver.sweep(second.run_id, "start")
    lease = await driver.claim(entered.deliveries[0])
    assert driver.said(lease) == ["hello", "bye", "second", "in metres"]


async def test_nothing_is_said_into_a_run_that_ends(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id)
    for _ in range(2):
        with pytest.raises(StateConflict) as refused:
            await driver.act(run_id, say("hello?"))
        assert refused.value.code == "run_ended"
        if (await driver.get(run_id)).status is RunStatus.CANCELLING:
            await driver.finish(lease)


async def test_strange_words_survive(driver: StoreDriver) -> None:
    text = 'zwölf "quoted" \\ \x00 \u2028 \U0001f916 </script> %s'
    submitted = await driver.submit()
    await driver.act(submitted.run_id, PAUSE)
    await driver.act(submitted.run_id, say(text))
    acted = await driver.act(submitted.run_id, RESUME)
    assert (driver.said(await driver.claim(acted.settled.deliveries[0])))[-1] == text


async def test_a_submit_may_steer(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    with driver.answers_get_lost():
        steered = await driver.submit("in metres", conversation_id=lease.conversation_id, on_conflict="steer")
    assert (steered.run_id, steered.steered, steered.replayed, steered.deliveries) == (run_id, True, False, ())
    settled = await driver.finish(lease)
    assert driver.said(await driver.claim(settled.deliveries[0])) == ["hello", "bye", "in metres"]
    assert (await driver.store.runs.conversation(lease.conversation_id)).queued_runs == ()


async def test_a_submit_that_steers_with_several_messages(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    told = (
        Message(role="user", content="a"),
        Message(role="assistant", content="b"),
        Message(role="user", content="c"),
    )
    await driver.submit(told, conversation_id=lease.conversation_id, on_conflict="steer", agent=None)
    settled = await driver.finish(lease)
    assert (driver.said(await driver.claim(settled.deliveries[0])))[2:] == ["a", "b", "c"]


async def test_the_same_key_steers_once(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    how = {"conversation_id": lease.conversation_id, "on_conflict": "steer", "idempotency_key": "k"}
    with driver.answers_get_lost():
        first = await driver.submit("in metres", **how)
    again = await driver.submit("in metres", **how)
    assert [(each.run_id, each.steered, each.replayed) for each in (first, again)] == [
        (run_id, True, False), (run_id, True, True),
    ]  # fmt: skip
    await driver.finish(lease)
    assert await _steered(driver, run_id) == ["in metres"]


async def test_there_may_be_nothing_to_steer(driver: StoreDriver) -> None:
    """Then it is a run of its own; behind one that is being cancelled it waits for its turn."""
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id)
    second = await driver.submit("again", conversation_id=lease.conversation_id, on_conflict="steer")
    assert (second.steered, second.run_id != run_id) == (False, True)
    assert (await driver.finish(lease)).next_run == second.run_id
    await driver.sweep(second.run_id, "start")
    await driver.store.runs.cancel(second.run_id)

    third = await driver.submit("again", conversation_id=lease.conversation_id, on_conflict="steer")
    assert (third.steered, len(third.deliveries)) == (False, 1)


@pytest.mark.parametrize("state", ["ready", "paused", "requires_action", "next"])
async def test_a_submit_steers_a_run_whatever_it_waits_for(driver: StoreDriver, state: str) -> None:
    lease: Lease | None = None
    if state == "next":
        _, lease = await driver.begin()
        run_id = (await driver.submit("second", conversation_id=lease.conversation_id)).run_id
        await driver.finish(lease)
    elif state == "requires_action":
        run_id, _ = await driver.turn("p1", approval=["p1"])
    else:
        run_id = (await driver.submit()).run_id
        if state == "paused":
            await driver.act(run_id, PAUSE)
    conversation = (await driver.get(run_id)).conversation_id
    before = (await driver.get(run_id)).status
    steered = await driver.submit("in metres", conversation_id=conversation, on_conflict="steer")
    assert (steered.steered, steered.run_id, (await driver.get(run_id)).status) == (True, run_id, before)
    assert await _steered(driver, run_id) == (["in metres"] if state in ("ready", "paused") else [])
