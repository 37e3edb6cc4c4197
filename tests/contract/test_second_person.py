"""Calls that somebody else approves than who submitted the run, or spoke into it."""

from __future__ import annotations

import pytest

from palaver.errors import StateConflict
from palaver.schemas.actions import Item
from palaver.schemas.models import Message, Submission
from palaver.steps.leases import Lease
from tests.contract.store_driver import AGENT, StoreDriver, approve, calls, deny, edit, output, say


async def begin(driver: StoreDriver, by: str | None = "ann", **waits: list[str]) -> tuple[str, Lease]:
    """A run of ``by`` that asks for c1, which needs a second person, and for what else waits."""
    submitted = await driver.store.runs.submit(Submission(input="hello", agent=AGENT), by=by)
    lease = await driver.claim(submitted.deliveries[0])
    others = [call for names in waits.values() for call in names]
    waits["approval"] = ["c1", *waits.get("approval", [])]
    await driver.store.steps.settle(lease, calls("c1", *others, second_person=["c1"], **waits))  # type: ignore[arg-type]
    return submitted.run_id, lease


async def refused(driver: StoreDriver, run_id: str, *items: Item, by: str | None, code: str) -> None:
    before = await driver.get(run_id)
    with pytest.raises(StateConflict) as conflict:
        await driver.store.control.act(run_id, items, by=by)
    assert conflict.value.code == code
    assert (await driver.get(run_id)).pending_actions == before.pending_actions


async def approved(driver: StoreDriver, run_id: str, item: Item, by: str) -> None:
    acted = await driver.store.control.act(run_id, [item], by=by)
    assert [delivery.step for delivery in acted.settled.deliveries] == ["1/c1"]
    assert not (await driver.get(run_id)).pending_actions


REQUIRED = "second_person_required"


async def test_the_action_says_so(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver, approval=["c2"])
    assert [action.second_person for action in (await driver.get(run_id)).pending_actions] == [True, False]


async def test_who_submitted_does_not_approve_and_another_one_does(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver)
    (action,) = (await driver.get(run_id)).pending_actions
    for item in (approve(action.id), approve("all")):
        await refused(driver, run_id, item, by="ann", code=REQUIRED)
        await refused(driver, run_id, item, by=None, code=REQUIRED)
    await approved(driver, run_id, approve(action.id), by="bob")


async def test_one_request_for_several_calls_approves_all_or_none(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver, approval=["c2"])
    first, second = (await driver.get(run_id)).pending_actions
    await refused(driver, run_id, approve(second.id), approve(first.id), by="ann", code=REQUIRED)
    await refused(driver, run_id, approve("all"), by="ann", code=REQUIRED)
    acted = await driver.store.control.act(run_id, [approve(second.id)], by="ann")
    assert [delivery.step for delivery in acted.settled.deliveries] == ["1/c2"]
    # Else the next one would wait for its turn behind this delivery.
    await driver.claim(acted.settled.deliveries[0])
    await approved(driver, run_id, approve("all"), by="bob")


async def test_anybody_may_deny(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver)
    await driver.store.control.act(run_id, [deny("all")], by="ann")
    assert not (await driver.get(run_id)).pending_actions


async def test_nobody_changes_its_arguments(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver)
    (action,) = (await driver.get(run_id)).pending_actions
    for by in ("ann", "bob"):
        await refused(driver, run_id, edit(action.id, x=99_999), by=by, code="not_to_be_edited")
    await approved(driver, run_id, approve(action.id), by="bob")


async def test_a_run_without_a_name_is_approved_by_nobody(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver, by=None)
    await refused(driver, run_id, approve("all"), by="bob", code=REQUIRED)
    await driver.store.control.act(run_id, [deny("all")], by="bob")


async def test_who_spoke_into_the_run_is_no_second_person(driver: StoreDriver) -> None:
    run_id, lease = await begin(driver)
    conversation_id = lease.conversation_id
    await driver.store.control.act(run_id, [say("pay more")], by="bob")
    await driver.store.runs.submit(
        Submission(input="and more", conversation_id=conversation_id, on_conflict="steer"), by="cid"
    )
    await driver.store.history.append(conversation_id, [Message(role="user", content="more")], by="dan")
    for by in ("ann", "bob", "cid", "dan"):
        await refused(driver, run_id, approve("all"), by=by, code=REQUIRED)
    await approved(driver, run_id, approve("all"), by="eve")


async def test_who_answered_for_a_tool_of_the_run_is_none_either(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver, client=["c2"])
    await driver.store.control.act(run_id, [output("c2", "pay more")], by="bob")
    await refused(driver, run_id, approve("all"), by="bob", code=REQUIRED)
    await approved(driver, run_id, approve("all"), by="cid")


async def test_words_without_a_name_may_be_anybodys(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver)
    await driver.store.control.act(run_id, [say("pay more")], by=None)
    await refused(driver, run_id, approve("all"), by="bob", code=REQUIRED)


async def test_in_one_request_nobody_speaks_and_approves(driver: StoreDriver) -> None:
    run_id, _ = await begin(driver)
    await refused(driver, run_id, say("pay more"), approve("all"), by="bob", code=REQUIRED)
    await refused(driver, run_id, approve("all"), say("pay more"), by="bob", code=REQUIRED)
