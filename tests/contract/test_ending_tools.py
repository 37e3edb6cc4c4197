"""A tool that ends the run: its result is the output, no model is called after it, and every call has its result."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.steps.verdicts import Continue, OpenCall, ToolOutcome
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import AGENT, PAUSE, RESUME, StoreDriver, approve, deny, say


def ending(*ids: str, text: str = "done", approval: tuple[str, ...] = ()) -> Continue:
    """The model asks for tools, of which the last one has ended the run at once."""
    asked = tuple(ToolCall(id=call_id, name="calculator") for call_id in ids)
    result = Message(role="tool", call_id=ids[-1], name="finish", content=text)
    opened = tuple(OpenCall(call, False, "approval" if call.id in approval else None, 60.0) for call in asked[:-1])
    return Continue(Message(role="assistant", tool_calls=asked), (ToolOutcome(result, ends_run=True),), opened)


async def test_the_run_ends_with_its_text(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    with driver.answers_get_lost():
        settled = await driver.store.steps.settle(lease, ending("f1"))
    assert (settled.status, settled.deliveries) == ("completed", ())
    run = await driver.get(run_id)
    assert (run.stop_reason, run.output, run.usage.tool_calls) == (StopReason.END_TURN, "done", 1)
    assert await driver.results(run_id) == [("f1", "done")]

    _, lease = await driver.begin(input="and now?", conversation_id=lease.conversation_id)
    assert [entry.message.role for entry in lease.log.entries] == ["user", "assistant", "tool", "user"]


async def test_one_that_says_nothing_leaves_no_output(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.settle(lease, ending("f1", text=""))
    run = await driver.get(run_id)
    assert (run.status, run.output or "") == ("completed", "")


async def test_the_calls_before_it_have_their_results_first(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    settled = await driver.store.steps.settle(lease, ending("c1", "p1", "f1", approval=("p1",)))
    assert settled.status == "running"
    (delivery,) = settled.deliveries
    assert (await driver.answer(await driver.claim(delivery))).status == "requires_action"
    assert (await driver.get(run_id)).output is None
    (delivery,) = (await driver.act(run_id, approve())).settled.deliveries
    assert (await driver.answer(await driver.claim(delivery))).status == "completed"
    assert (await driver.get(run_id)).output == "done"
    assert sorted(await driver.results(run_id)) == [("c1", "42"), ("f1", "done"), ("p1", "42")]


async def test_a_tool_step_ends_it_too(driver: StoreDriver) -> None:
    run_id, (first, second) = await driver.turn("c1", "c2")
    assert (await driver.answer(await driver.claim(first), "over", ends_run=True)).status == "running"
    with driver.answers_get_lost():
        assert (await driver.answer(await driver.claim(second))).status == "completed"
    assert (await driver.get(run_id)).output == "over"


async def test_a_denied_call_beside_it_does_not_keep_it_up(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.settle(lease, ending("p1", "f1", approval=("p1",)))
    assert (await driver.act(run_id, deny())).settled.status == "completed"


async def test_words_of_the_user_are_answered_first(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, say("wait, in feet"))
    settled = await driver.store.steps.settle(lease, ending("f1"))
    assert settled.status == "running"
    lease = await driver.claim(settled.deliveries[0])
    assert driver.said(lease)[-2:] == ["done", "wait, in feet"]
    await driver.finish(lease, text="10 ft")
    assert (await driver.get(run_id)).output == "10 ft"


async def test_a_pause_holds_it(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, PAUSE)
    assert (await driver.store.steps.settle(lease, ending("f1"))).status == "paused"
    assert (await driver.get(run_id)).output is None
    assert (await driver.act(run_id, RESUME)).settled.status == "completed"
    assert (await driver.get(run_id)).output == "done"


@pytest.mark.parametrize("cancelled", [False, True])
async def test_it_needs_no_further_step_and_no_cancel_is_lost(driver: StoreDriver, cancelled: bool) -> None:
    run_id, lease = await driver.begin(agent=AgentSpec(model=AGENT.model, max_steps=1))
    if cancelled:
        await driver.store.runs.cancel(run_id)
    settled = await driver.store.steps.settle(lease, ending("f1"))
    assert settled.status == ("cancelled" if cancelled else "completed")


async def test_a_lost_worker_does_not_take_the_end_away(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    (delivery,) = (await driver.store.steps.settle(lease, ending("c1", "f1"))).deliveries
    await driver.lose(await driver.claim(delivery))
    run = await driver.get(run_id)
    assert (run.status, run.output) == ("completed", "done")
