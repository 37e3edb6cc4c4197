"""A worker that settles a model step begins the tool steps of its turn with that, and the next model step behind the
last of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from palaver.errors import StaleLease
from palaver.schemas.models import Budget, Message
from palaver.schemas.tenants import CapsChange
from palaver.steps.leases import Lease, LogTail, Renewal, Settled, Stray
from palaver.steps.verdicts import Continue
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from palaver.vocabulary.step_kinds import TOOL
from tests.contract.store_driver import PAUSE, StoreDriver, calls
from tests.contract.test_in_place import go_on, scores

CAPPED = "k7m2qx"


async def begun(driver: StoreDriver, lease: Lease, *ids: str, worker: str = "w1", **how: Any) -> tuple[Lease, ...]:
    """The leases of these calls, which begin behind a model step."""
    settled = await asked(driver, lease, *ids, worker=worker, **how)
    assert [each.step for each in settled.following] == [f"{lease.step}/{each}" for each in ids]
    assert (settled.status, settled.deliveries, settled.next_run) == (RunStatus.RUNNING, (), None)
    return settled.following


async def asked(
    driver: StoreDriver,
    lease: Lease,
    *ids: str,
    worker: str = "w1",
    room: int = 9,
    nonce: str | None = None,
    **how: Any,
) -> Settled:
    """The model asks for these, and its worker offers to begin them."""
    place = (await driver.place(lease, worker, nonce=nonce))._replace(room=room)
    verdict = calls(*ids, **{"at_hand": ids, **how})
    return await driver.store.steps.settle(lease, verdict, place=place)


async def answered(driver: StoreDriver, lease: Lease, worker: str = "w1") -> Settled:
    """The tool answers, and its worker offers to go on."""
    return await driver.answer(lease, place=await driver.place(lease, worker))


async def test_the_calls_of_a_turn_are_leased_and_not_delivered(driver: StoreDriver) -> None:
    run_id, model = await driver.begin(metadata={"a": "b"})
    first, second = await begun(driver, model, "a", "b")
    assert model.fence < first.fence < second.fence
    assert first.call is not None
    assert (first.kind, first.call.id, first.attempt, first.try_number) == (TOOL, "a", 1, 1)
    assert (first.waited, first.elapsed, first.log) == (0.0, 0.0, LogTail())
    shard = run_id[4:6]
    assert await scores(driver, keys.ready(shard, "tools")) == {}
    due = await scores(driver, keys.due(shard))
    assert {f"{run_id}/1/a", f"{run_id}/1/b"} <= due.keys()
    step = orjson.loads(await driver.redis.hget(keys.steps(run_id), "1/a"))
    assert (step["state"], step["worker"], step["fence"]) == ("leased", "w1", first.fence)
    started = [event.data for event in await driver.events(run_id) if event.type == "step.started"]
    assert [(each["step"], each["worker"]) for each in started[1:]] == [("1/a", "w1"), ("1/b", "w1")]


async def test_such_a_lease_says_what_a_claim_would_have_said(driver: StoreDriver) -> None:
    """Two runs, one of whose calls is delivered, and one begun in place."""
    (_, here), (_, there) = [await driver.begin(metadata={"a": "b"}) for _ in range(2)]
    (in_place,) = await begun(driver, here, "a")
    (delivery,) = await driver.ask(there, "a")
    claimed = await driver.claim(delivery)
    differs = {"run_id", "conversation_id", "fence", "waited", "time_left", "elapsed", "trace", "log"}
    for name in Lease.__dataclass_fields__:
        if name not in differs:
            assert getattr(in_place, name) == getattr(claimed, name), name
    assert in_place.time_left == pytest.approx(claimed.time_left, abs=5)
    assert (in_place.trace is None) == (claimed.trace is None)


async def test_the_last_call_of_a_turn_is_followed_by_the_model(driver: StoreDriver) -> None:
    _, model = await driver.begin()
    first, second = await begun(driver, model, "a", "b")
    settled = await answered(driver, second)
    assert (settled.following, settled.deliveries) == ((), ())
    (following,) = (await answered(driver, first)).following
    assert (following.step, following.call) == ("2", None)
    said = [entry.message.role for entry in following.log.entries]
    assert said == ["user", "assistant", "tool", "tool"]
    await driver.finish(following)


async def test_a_worker_that_knows_another_log_is_told_all_of_it(driver: StoreDriver) -> None:
    """Redis lost what the worker had read, and others took those positions: the lease of a call did not say so."""
    run_id, model = await driver.begin()
    (delivery,) = await driver.ask(model, "a")
    call = await driver.claim(delivery)
    newest = (await driver.log(run_id))[-1].position
    place = await driver.place(call, known=newest)
    (following,) = (await driver.answer(call, place=place._replace(known_at=place.known_at - 1))).following
    assert following.log.rebuilt
    assert [entry.message.role for entry in following.log.entries] == ["user", "assistant", "tool"]


async def test_a_whole_run_without_a_delivery(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    for _ in range(5):
        (call,) = await begun(driver, lease, "a")
        (lease,) = (await answered(driver, call)).following
    await driver.finish(lease)
    run = await driver.get(run_id)
    assert (run.status, run.usage.tool_calls) == (RunStatus.COMPLETED, 5)
    assert await scores(driver, keys.due(run_id[4:6])) == {}


async def test_leases_whose_answer_was_lost_are_given_again(driver: StoreDriver) -> None:
    run_id, model = await driver.begin()
    first = await asked(driver, model, "a", "b", nonce="same")
    again = await asked(driver, model, "a", "b", nonce="same")
    assert sorted((each.step, each.fence) for each in again.following) == [
        (each.step, each.fence) for each in first.following
    ]
    started = [event.data["step"] for event in await driver.events(run_id) if event.type == "step.started"]
    assert started == ["1", "1/a", "1/b"]
    assert not (await asked(driver, model, "a", "b", nonce="another")).following
    assert not (await asked(driver, model, "a", "b", nonce="same", worker="w2")).following


async def test_leases_that_are_given_again_begin_anew(driver: StoreDriver) -> None:
    """Their answer may have been lost for most of a lease, and a worker renews only what it knows of."""
    run_id, model = await driver.begin()
    due = keys.due(run_id[4:6])
    await asked(driver, model, "a", nonce="calls")
    ends = (await scores(driver, due))[f"{run_id}/1/a"]
    await driver.redis.zadd(due, {f"{run_id}/1/a": 1})
    (call,) = (await asked(driver, model, "a", nonce="calls")).following
    assert (await scores(driver, due))[f"{run_id}/1/a"] >= ends
    place = await driver.place(call)
    await driver.answer(call, place=place)
    ends = (await scores(driver, due))[f"{run_id}/2"]
    await driver.redis.zadd(due, {f"{run_id}/2": 1})
    assert [each.step for each in (await driver.answer(call, place=place)).following] == ["2"]
    assert (await scores(driver, due))[f"{run_id}/2"] >= ends


async def test_of_those_that_are_over_nothing_is_given_again(driver: StoreDriver) -> None:
    _, model = await driver.begin()
    first = await asked(driver, model, "a", "b", nonce="same")
    await driver.answer(first.following[0])
    again = await asked(driver, model, "a", "b", nonce="same")
    assert [each.step for each in again.following] == ["1/b"]


async def test_only_calls_at_hand_are_begun_and_others_delivered(driver: StoreDriver) -> None:
    _, model = await driver.begin()
    settled = await asked(driver, model, "a", "b", "c", at_hand=("b",), approval=("c",))
    assert [each.step for each in settled.following] == ["1/b"]
    assert [each.step for each in settled.deliveries] == ["1/a"]


async def test_a_call_that_waits_for_a_person_is_not_begun(driver: StoreDriver) -> None:
    run_id, model = await driver.begin()
    settled = await asked(driver, model, "a", approval=("a",))
    assert (settled.following, settled.deliveries) == ((), ())
    assert (await driver.get(run_id)).status == RunStatus.REQUIRES_ACTION


async def test_each_call_beside_the_first_takes_a_place_more(driver: StoreDriver) -> None:
    _, model = await driver.begin()
    settled = await asked(driver, model, "a", "b", "c", room=1)
    assert [each.step for each in settled.following] == ["1/a", "1/b"]
    assert [each.step for each in settled.deliveries] == ["1/c"]


async def test_no_call_is_begun_while_another_waits_in_its_queue(driver: StoreDriver) -> None:
    """Exactly: as many as wait for longer than a delivery is on its way must have room."""
    _, other = await driver.begin()
    (waiting,) = await driver.ask(other, "x")
    ready = keys.ready(waiting.run_id[4:6], "tools")
    await driver.redis.zadd(ready, {f"{waiting.run_id}/1/x": 1})
    _, model = await driver.begin()
    settled = await asked(driver, model, "a", room=0)
    assert (settled.following, settled.deliveries) == ((), ())
    assert f"{model.run_id}/1/a" in await scores(driver, keys.held_back(model.run_id[4:6], "tools"))
    _, model = await driver.begin()
    assert await begun(driver, model, "b", room=1)


@pytest.mark.parametrize("waits", ["model", "tools"])
async def test_neither_kind_of_step_passes_the_other_by(driver: StoreDriver, waits: str) -> None:
    """Of a worker that does both, a step of either kind may wait for the place that a run would go on in."""
    (call,) = await begun(driver, (await driver.begin())[1], "a")
    _, other = await driver.begin()
    (waiting,) = (await driver.submit()).deliveries if waits == "model" else await driver.ask(other, "x")
    await driver.redis.zadd(keys.ready(waiting.run_id[4:6], waits), {f"{waiting.run_id}/{waiting.step}": 1})
    settled = await asked(driver, (await driver.begin())[1], "a", "b", room=1)
    assert [each.step for each in settled.following] == ["1/a"]
    assert not (await answered(driver, call)).following
    assert not (await asked(driver, (await driver.begin())[1], "a", room=0)).following


async def test_what_waits_for_the_cap_of_its_tenant_holds_nobody_up(driver: StoreDriver) -> None:
    with within(Reach(CAPPED)):
        await driver.store.caps.change(CAPPED, CapsChange(max_in_flight=1))
        first, held = await driver.submit(), await driver.submit()
        await driver.claim(first.deliveries[0])
    await driver.redis.zadd(keys.held_back(held.run_id[4:6], "model"), {f"{held.run_id}/1": 1})
    await begun(driver, (await driver.begin())[1], "a")


async def test_a_tenant_at_its_cap_begins_none(driver: StoreDriver) -> None:
    await driver.store.caps.change("", CapsChange(max_in_flight=2))
    _, model = await driver.begin()
    settled = await asked(driver, model, "a", "b", "c")
    assert [each.step for each in settled.following] == ["1/a", "1/b"]
    assert settled.deliveries == ()


async def test_a_cancel_before_begins_no_call(driver: StoreDriver) -> None:
    run_id, model = await driver.begin()
    await driver.store.runs.cancel(run_id)
    settled = await asked(driver, model, "a")
    assert (settled.following, settled.status) == ((), RunStatus.CANCELLED)


async def test_a_cancel_between_two_steps_wins(driver: StoreDriver) -> None:
    run_id, model = await driver.begin()
    (call,) = await begun(driver, model, "a")
    await driver.store.runs.cancel(run_id)
    settled = await answered(driver, call)
    assert (settled.following, settled.status) == ((), RunStatus.CANCELLED)


async def test_a_pause_lets_calls_end_and_parks_the_model(driver: StoreDriver) -> None:
    run_id, model = await driver.begin()
    (call,) = await begun(driver, model, "a")
    await driver.act(run_id, PAUSE)
    settled = await answered(driver, call)
    assert (settled.following, settled.deliveries) == ((), ())
    assert (await driver.get(run_id)).status == RunStatus.PAUSED


async def test_a_budget_that_is_used_up_begins_none(driver: StoreDriver) -> None:
    run_id, model = await driver.begin(budget=Budget(tool_calls=1))
    settled = await asked(driver, model, "a", "b")
    assert (settled.following, settled.status) == ((), RunStatus.INCOMPLETE)
    assert (await driver.get(run_id)).stop_reason is StopReason.BUDGET


async def test_a_worker_that_dies_with_a_call_has_made_it(driver: StoreDriver) -> None:
    _, model = await driver.begin()
    first, second = await begun(driver, model, "a", "b", idempotent=("b",))
    await driver.lose(first)
    (lost,) = await driver.lose(second)
    (delivery,) = lost.deliveries
    assert (delivery.step, delivery.number) == ("1/b", 2)
    again = await driver.claim(delivery, "w2")
    assert again.try_number == 2
    with pytest.raises(StaleLease):
        await driver.answer(second)


async def test_it_is_a_lease_like_any_other(driver: StoreDriver) -> None:
    run_id, model = await driver.begin()
    (call,) = await begun(driver, model, "a")
    assert await driver.store.steps.renew([call]) == [Renewal.PROLONGED]
    stray = await driver.store.steps.claim(
        run_id, model.conversation_id, "1/a", queues=("tools",), worker="w2", nonce="x", known=None
    )
    assert stray == Stray("leased")
    with pytest.raises(StaleLease):
        await driver.answer(model.of_call(call.answers, None, call.fence + 1, 1.0, ""))


async def test_a_model_step_goes_on_by_itself_as_before(driver: StoreDriver) -> None:
    _, model = await driver.begin()
    settled = await go_on(driver, model, Continue(Message(role="assistant", content="hm")))
    assert [each.step for each in settled.following] == ["2"]
