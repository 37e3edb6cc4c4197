"""Denied and stopped in one act: every call has its denial, no model is called, and the next run goes on from there."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StateConflict
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import RESUME, STOP, StoreDriver, approve, deny, say


async def test_denials_and_then_nothing(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", "p2", approval=["p1", "p2"])
    with driver.answers_get_lost():
        acted = await driver.act(run_id, deny(reason="Not on a Sunday."), STOP, by="eve")
    assert (acted.settled.status, acted.settled.deliveries) == ("cancelled", ())
    run = await driver.get(run_id)
    assert (run.status, run.step, run.pending_actions) == (RunStatus.CANCELLED, 1, ())
    assert run.cancel is not None
    assert (run.cancel.mode, run.cancel.by) == ("graceful", "eve")
    denied = "The user denied this tool call. Not on a Sunday."
    assert await driver.results(run_id) == [("p1", denied), ("p2", denied)]

    submitted = await driver.submit((), conversation_id=run.conversation_id)
    lease = await driver.claim(submitted.deliveries[0])
    assert driver.said(lease) == ["hello", "let me see", denied, denied]


async def test_what_nobody_decided_on_is_denied_too(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", "o1", approval=["p1"], client=["o1"])
    action = await driver.action(run_id, "p1")
    assert (await driver.act(run_id, deny(action.id), STOP)).settled.status == "cancelled"
    results = dict(await driver.results(run_id))
    assert results["p1"] == "The user denied this tool call."
    assert results["o1"].startswith("The user cancelled the request before the client gave its output.")


async def test_a_tool_that_is_under_way_finishes(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1", "p1", approval=["p1"])
    tool = await driver.claim(delivery)
    assert (await driver.act(run_id, deny(), STOP)).settled.status == "cancelling"
    assert (await driver.answer(tool)).status == "cancelled"
    assert dict(await driver.results(run_id)) == {"p1": "The user denied this tool call.", "c1": "42"}


async def test_what_was_just_approved_is_not_begun(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", approval=["p1"])
    assert (await driver.act(run_id, approve(), STOP)).settled.status == "cancelled"
    assert "denied" in dict(await driver.results(run_id))["p1"]


async def test_words_beside_it_are_in_the_log(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", approval=["p1"])
    await driver.act(run_id, deny(), STOP, say("use the other one"))
    submitted = await driver.submit((), conversation_id=(await driver.get(run_id)).conversation_id)
    assert driver.said(await driver.claim(submitted.deliveries[0]))[-1] == "use the other one"


@pytest.mark.parametrize("wrong", [deny("act_nothing"), RESUME])
async def test_all_or_nothing(driver: StoreDriver, wrong: Any) -> None:
    run_id, _ = await driver.turn("p1", approval=["p1"])
    with pytest.raises(StateConflict):
        await driver.act(run_id, STOP, wrong)
    assert (await driver.get(run_id)).status == "requires_action"


async def test_the_next_run_has_its_turn(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    second = await driver.submit("second", conversation_id=lease.conversation_id)
    await driver.ask(lease, "p1", approval=["p1"])
    acted = await driver.act(run_id, deny(), STOP)
    assert acted.settled.next_run == second.run_id
