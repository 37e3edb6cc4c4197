"""Who asks for a payment by a batch does not approve it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.test_api_second_person import AGENT, PAY, Office, office


@pytest.fixture
async def desk() -> AsyncIterator[Office]:
    async with office() as made:
        yield made


async def test_an_item_of_a_batch_is_of_who_added_it(desk: Office) -> None:
    batch = await desk.batch("bob")
    await desk.have("ann", "POST", f"/v1/batches/{batch['id']}/items", {"offset": 1, "items": [{"input": PAY}]})
    await desk.look()
    own, added = sorted(await desk.runs(), key=lambda run: str(run["input_preview"]))
    assert [run["submitted_by"] for run in (added, own)] == ["ann", "bob"]
    await desk.check(await desk.pay(added), none_of="ann bob", but="cid")
    await desk.check(await desk.pay(own), none_of="bob", but="ann")


async def test_who_made_a_batch_whose_items_others_add(desk: Office) -> None:
    batch = await desk.batch("ann", agents=[{**AGENT, "instructions": PAY}], items=[])
    await desk.have("bob", "POST", f"/v1/batches/{batch['id']}/items", {"offset": 0, "items": [{"input": "hello"}]})
    await desk.look()
    (run,) = await desk.runs()
    await desk.check(await desk.pay(run), none_of="ann bob", but="cid")


async def test_who_spoke_into_a_run_whose_answer_is_judged(desk: Office) -> None:
    await desk.batch("bob", scorer=AGENT, complete=True)
    await desk.look()
    (run,) = await desk.runs()
    await desk.have("ann", "POST", f"/v1/runs/{run['id']}/input", {"items": [{"type": "message", "content": PAY}]})
    await desk.end(run)
    await desk.look()
    (judge,) = await desk.runs("status=queued")
    await desk.check(await desk.pay(judge), none_of="ann bob", but="cid")


async def test_who_retries_a_batch_is_no_second_person_for_what_it_begins_again(desk: Office) -> None:
    batch = await desk.batch("bob", complete=True)
    await desk.look()
    (run,) = await desk.runs()
    await desk.have("bob", "POST", f"/v1/runs/{run['id']}/cancel")
    await desk.look()
    await desk.have("ann", "POST", f"/v1/batches/{batch['id']}/retry")
    await desk.look()
    again = (await desk.runs())[0]
    assert (again["submitted_by"], again["id"] == run["id"]) == ("bob", False)
    await desk.check(await desk.pay(again), none_of="ann bob", but="cid")


async def test_who_retries_a_cancelled_batch_is_none_for_what_had_not_begun(desk: Office) -> None:
    batch = await desk.batch("bob", items=[{"input": "a"}, {"input": "b"}], window=1, complete=True)
    await desk.look()
    await desk.have("bob", "POST", f"/v1/batches/{batch['id']}/cancel")
    await desk.look()
    await desk.look()
    await desk.have("ann", "POST", f"/v1/batches/{batch['id']}/retry")
    await desk.look()
    for run in await desk.runs("status=queued"):
        await desk.check(await desk.pay(run), none_of="ann bob", but="cid")
