"""The user's words into a run that is going on: never lost, seen by the next model call, never inside an open turn."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StateConflict
from palaver.leases import Lease
from palaver.lifecycle import RunStatus, StopReason
from palaver.models import AgentSpec, Message
from palaver.verdicts import Continue
from tests.contract.desk import PAUSE, RESUME, Desk, approve, output, say

ONE_STEP = AgentSpec(model="fake/echo", max_steps=1)


async def _steered(desk: Desk, run_id: str) -> list[str]:
    """The user's words into the run that are in the log."""
    return [entry.data["message"]["content"] for entry in await desk.log(run_id) if entry.data.get("steer")]


async def test_a_step_that_nobody_began_sees_it(desk: Desk) -> None:
    submitted = await desk.submit()
    acted = await desk.act(submitted.run_id, say("in metres"), say("please"))

    assert (acted.settled.status, acted.settled.deliveries) == ("queued", ())
    created = (await desk.events(submitted.run_id))[-2]
    assert created.data == {"steer": True, "message": {"role": "user", "content": "in metres"}}
    lease = await desk.claim(submitted.deliveries[0])
    assert desk.said(lease) == ["hello", "in metres", "please"]


async def test_a_worker_that_knows_the_conversation_is_told_it(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    (delivery,) = (await desk.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    await desk.act(run_id, say("in metres"))
    again = await desk.claim(delivery, known=lease.position)
    assert desk.said(again) == ["hm", "in metres"]


@pytest.mark.parametrize("brings", ["retry", "postponed", "handed back", "lost"])
async def test_a_call_that_is_made_again_sees_it(desk: Desk, brings: str) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, say("in metres"))
    assert await _steered(desk, run_id) == []
    match brings:
        case "retry":
            await desk.retry(lease)
        case "postponed":
            await desk.postpone(lease)
        case "handed back":
            settled = await desk.hand_back(lease)
        case _:
            (settled,) = await desk.lose(lease)
    if brings in ("retry", "postponed"):
        await desk.act(run_id, say("please"))
        (settled,) = await desk.hasten(run_id, "1")
        assert desk.said(await desk.claim(settled.deliveries[0])) == ["hello", "in metres", "please"]
    else:
        assert desk.said(await desk.claim(settled.deliveries[0])) == ["hello", "in metres"]


async def test_it_waits_for_the_results_of_the_turn(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, say("one"))
    (delivery,) = await desk.ask(lease, "c1", "p1", "o1", approval=["p1"], client=["o1"])
    await desk.act(run_id, say("two"))
    tool = await desk.claim(delivery)
    await desk.act(run_id, say("three"))
    await desk.answer(tool)
    acted = await desk.act(run_id, say("four"))
    assert acted.settled.status == "requires_action"
    assert await _steered(desk, run_id) == []

    acted = await desk.act(run_id, output("o1"), approve())
    (delivery,) = (await desk.answer(await desk.claim(acted.settled.deliveries[0]))).deliveries
    lease = await desk.claim(delivery)
    assert (desk.said(lease))[1:] == ["let me see", "42", "seen", "42", "one", "two", "three", "four"]


async def test_a_model_that_is_just_finishing_goes_on(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, say("and in feet?"))
    settled = await desk.finish(lease, text="3 m")

    assert settled.status == "running"
    assert (await desk.get(run_id)).output is None
    again = await desk.claim(settled.deliveries[0])
    assert (again.step, desk.said(again)) == ("2", ["hello", "3 m", "and in feet?"])
    await desk.finish(again, text="10 ft")
    run = await desk.get(run_id)
    assert (run.status, run.output) == (RunStatus.COMPLETED, "10 ft")


async def test_a_finish_whose_answer_was_lost_goes_on_once(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    with desk.answers_get_lost():
        await desk.act(run_id, say("and in feet?"))
        settled = await desk.finish(lease)
    assert [each.step for each in settled.deliveries] == ["2"]
    assert await _steered(desk, run_id) == ["and in feet?"]


@pytest.mark.parametrize("reason", [StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER])
async def test_an_answer_that_was_cut_off_ends_the_run(desk: Desk, reason: StopReason) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, say("go on"))
    assert (await desk.finish(lease, reason)).status == "incomplete"
    assert await _steered(desk, run_id) == ["go on"]


@pytest.mark.parametrize("tools", [False, True])
async def test_at_the_last_step_it_is_in_the_log(desk: Desk, tools: bool) -> None:
    run_id, lease = await desk.begin(agent=ONE_STEP)
    await desk.act(run_id, say("go on"))
    settled = await desk.finish(lease) if not tools else None
    if tools:
        (delivery,) = await desk.ask(lease, "c1")
        settled = await desk.answer(await desk.claim(delivery))
    assert settled is not None
    assert settled.status == "incomplete"
    assert await _steered(desk, run_id) == ["go on"]
    _, lease = await desk.begin(input="now", conversation_id=lease.conversation_id)
    assert (desk.said(lease))[-2:] == ["go on", "now"]


@pytest.mark.parametrize("ends", ["cancelled", "failed", "expired", "cancelled at once"])
async def test_whatever_ends_the_run_it_is_in_the_log(desk: Desk, redis: Any, ends: str) -> None:
    run_id, (delivery,) = await desk.turn("c1", "p1", approval=["p1"])
    tool = await desk.claim(delivery)
    await desk.act(run_id, say("stop it"))
    match ends:
        case "cancelled":
            await desk.store.runs.cancel(run_id)
            assert await _steered(desk, run_id) == []
            await desk.answer(tool)
        case "failed":
            await desk.give_up(tool)
        case "expired":
            await redis.hset(f"{{p00}}:run:{run_id}", "deadline", 2)
            await desk.hasten(run_id, "end")
        case _:
            await desk.hand_back(tool, begun=False)
            await desk.store.runs.cancel(run_id)
    run = await desk.get(run_id)
    assert run.status == ends.split()[0]
    assert await _steered(desk, run_id) == ["stop it"]
    said = [entry.type for entry in await desk.log(run_id) if "message" in entry.data]
    assert said[-3:] == ["tool.finished", "tool.finished", "message.created"]


async def test_into_a_paused_run(desk: Desk) -> None:
    submitted = await desk.submit()
    await desk.act(submitted.run_id, PAUSE)
    await desk.act(submitted.run_id, say("in metres"))
    assert await _steered(desk, submitted.run_id) == []
    acted = await desk.act(submitted.run_id, RESUME)
    assert desk.said(await desk.claim(acted.settled.deliveries[0])) == ["hello", "in metres"]


async def test_a_model_that_is_just_finishing_while_the_run_is_to_pause(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, PAUSE, say("and in feet?"))
    assert (await desk.finish(lease)).status == "paused"
    acted = await desk.act(run_id, RESUME)
    assert desk.said(await desk.claim(acted.settled.deliveries[0])) == ["hello", "bye", "and in feet?"]


async def test_into_a_run_that_queues(desk: Desk) -> None:
    _, lease = await desk.begin()
    second = await desk.submit("second", conversation_id=lease.conversation_id)
    await desk.act(second.run_id, say("in metres"))
    assert await _steered(desk, second.run_id) == []
    await desk.finish(lease)
    (entered,) = await desk.attend(second.run_id, "start")
    lease = await desk.claim(entered.deliveries[0])
    assert desk.said(lease) == ["hello", "bye", "second", "in metres"]


async def test_nothing_is_said_into_a_run_that_ends(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.store.runs.cancel(run_id)
    for _ in range(2):
        with pytest.raises(StateConflict) as refused:
            await desk.act(run_id, say("hello?"))
        assert refused.value.code == "run_ended"
        if (await desk.get(run_id)).status is RunStatus.CANCELLING:
            await desk.finish(lease)


async def test_strange_words_survive(desk: Desk) -> None:
    text = 'zwölf "quoted" \\ \x00 \u2028 \U0001f916 </script> %s'
    submitted = await desk.submit()
    await desk.act(submitted.run_id, PAUSE)
    await desk.act(submitted.run_id, say(text))
    acted = await desk.act(submitted.run_id, RESUME)
    assert (desk.said(await desk.claim(acted.settled.deliveries[0])))[-1] == text


async def test_a_submit_may_steer(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    with desk.answers_get_lost():
        steered = await desk.submit("in metres", conversation_id=lease.conversation_id, on_conflict="steer")
    assert (steered.run_id, steered.steered, steered.replayed, steered.deliveries) == (run_id, True, False, ())
    settled = await desk.finish(lease)
    assert desk.said(await desk.claim(settled.deliveries[0])) == ["hello", "bye", "in metres"]
    assert (await desk.store.runs.conversation(lease.conversation_id)).queued_runs == ()


async def test_a_submit_that_steers_with_several_messages(desk: Desk) -> None:
    _, lease = await desk.begin()
    told = (
        Message(role="user", content="a"),
        Message(role="assistant", content="b"),
        Message(role="user", content="c"),
    )
    await desk.submit(told, conversation_id=lease.conversation_id, on_conflict="steer", agent=None)
    settled = await desk.finish(lease)
    assert (desk.said(await desk.claim(settled.deliveries[0])))[2:] == ["a", "b", "c"]


async def test_the_same_key_steers_once(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    how = {"conversation_id": lease.conversation_id, "on_conflict": "steer", "idempotency_key": "k"}
    with desk.answers_get_lost():
        first = await desk.submit("in metres", **how)
    again = await desk.submit("in metres", **how)
    assert [(each.run_id, each.steered, each.replayed) for each in (first, again)] == [
        (run_id, True, False), (run_id, True, True),
    ]  # fmt: skip
    await desk.finish(lease)
    assert await _steered(desk, run_id) == ["in metres"]


async def test_there_may_be_nothing_to_steer(desk: Desk) -> None:
    """Then it is a run of its own; behind one that is being cancelled it waits for its turn."""
    run_id, lease = await desk.begin()
    await desk.store.runs.cancel(run_id)
    second = await desk.submit("again", conversation_id=lease.conversation_id, on_conflict="steer")
    assert (second.steered, second.run_id != run_id) == (False, True)
    assert (await desk.finish(lease)).next_run == second.run_id
    await desk.attend(second.run_id, "start")
    await desk.store.runs.cancel(second.run_id)

    third = await desk.submit("again", conversation_id=lease.conversation_id, on_conflict="steer")
    assert (third.steered, len(third.deliveries)) == (False, 1)


@pytest.mark.parametrize("state", ["ready", "paused", "requires_action", "next"])
async def test_a_submit_steers_a_run_whatever_it_waits_for(desk: Desk, state: str) -> None:
    lease: Lease | None = None
    if state == "next":
        _, lease = await desk.begin()
        run_id = (await desk.submit("second", conversation_id=lease.conversation_id)).run_id
        await desk.finish(lease)
    elif state == "requires_action":
        run_id, _ = await desk.turn("p1", approval=["p1"])
    else:
        run_id = (await desk.submit()).run_id
        if state == "paused":
            await desk.act(run_id, PAUSE)
    conversation = (await desk.get(run_id)).conversation_id
    before = (await desk.get(run_id)).status
    steered = await desk.submit("in metres", conversation_id=conversation, on_conflict="steer")
    assert (steered.steered, steered.run_id, (await desk.get(run_id)).status) == (True, run_id, before)
    assert await _steered(desk, run_id) == (["in metres"] if state == "ready" else [])
