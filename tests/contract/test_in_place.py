"""Who settles a model step claims the next one of its run with it, if that is ready and nobody waits for a worker."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from palaver.errors import StaleLease
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.steps.leases import Lease, Renewal, Settled, Stray
from palaver.steps.verdicts import Continue, Finish, RetryAfter, ToolOutcome
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.contract.store_driver import PAUSE, RATE_LIMITED, RESUME, StoreDriver, calls, say
from tests.waiting import aeventually

HM = Continue(Message(role="assistant", content="hm"))


async def go_on(driver: StoreDriver, lease: Lease, verdict: Any = HM, **place: Any) -> Settled:
    """Settle under ``lease``, and offer to go on."""
    return await driver.store.steps.settle(lease, verdict, place=await driver.place(lease, **place))


async def taken(driver: StoreDriver, lease: Lease, **place: Any) -> Lease:
    """The lease of the step behind that of ``lease``, claimed in place."""
    settled = await go_on(driver, lease, **place)
    assert (settled.status, settled.deliveries, settled.next_run) == (RunStatus.RUNNING, (), None)
    (following,) = settled.following
    return following


async def scores(driver: StoreDriver, key: str) -> dict[str, float]:
    return {member.decode(): score for member, score in await driver.redis.zrange(key, 0, -1, withscores=True)}


async def test_the_next_step_is_leased_and_not_delivered(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(metadata={"a": "b"})
    following = await taken(driver, lease, worker="w1", known=lease.log.position)
    assert (following.run_id, following.conversation_id, following.step) == (run_id, lease.conversation_id, "2")
    assert following.fence > lease.fence
    assert (following.attempt, following.try_number, following.waited) == (1, 1, 0.0)
    assert (following.agent, following.metadata, following.submitted_by) == (lease.agent, {"a": "b"}, None)
    assert [entry.message.text for entry in following.log.entries] == ["hm"]
    step = orjson.loads(await driver.redis.hget(keys.steps(run_id), "2"))
    assert (step["state"], step["worker"], step["deliveries"]) == ("leased", "w1", 1)
    shard = run_id[4:6]
    assert await scores(driver, keys.ready(shard, "model")) == {}
    assert f"{run_id}/2" in await scores(driver, keys.due(shard))
    started = [event.data for event in await driver.events(run_id) if event.type == "step.started"]
    assert [(each["step"], each["attempt"]) for each in started] == [("1", 1), ("2", 1)]
    assert started[1]["worker"] == "w1"


async def test_it_is_a_lease_like_any_other(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    following = await taken(driver, lease)
    assert await driver.store.steps.renew([following]) == [Renewal.PROLONGED]
    third = await taken(driver, following)
    with pytest.raises(StaleLease):
        await driver.finish(lease, text="late")
    await driver.finish(third)
    assert (await driver.get(run_id)).status == RunStatus.COMPLETED


async def test_the_answer_that_was_lost_is_given_again(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    place = await driver.place(lease, nonce="same")
    first = await driver.store.steps.settle(lease, HM, place=place)
    again = await driver.store.steps.settle(lease, HM, place=place)
    assert [(each.fence, each.step) for each in again.following] == [(first.following[0].fence, "2")]
    assert len([entry for entry in await driver.log(run_id) if entry.type == "message.created"]) == 2
    other = await driver.store.steps.settle(lease, HM, place=place._replace(nonce="another"))
    assert not other.following
    foreign = await driver.store.steps.settle(lease, HM, place=place._replace(worker="w2"))
    assert not foreign.following


async def test_what_is_new_is_told_as_the_log_has_it(driver: StoreDriver) -> None:
    """The script tells what it has written itself; a repeat of it reads the log."""
    _, lease = await driver.begin()
    call = ToolCall(id="c", name="calculator", arguments="{}")
    outcome = ToolOutcome(Message(role="tool", call_id="c", name="calculator", content="42"))
    opaque = Opaque("chat_completions/fake/x", '{"reasoning_content":"hm"}')
    verdict = Continue(Message(role="assistant", tool_calls=(call,)), outcomes=(outcome,), opaque=opaque)
    place = await driver.place(lease, nonce="same", known=lease.log.position)
    (first,) = (await driver.store.steps.settle(lease, verdict, place=place)).following
    (again,) = (await driver.store.steps.settle(lease, verdict, place=place)).following
    assert first.log == again.log
    assert [entry.message.role for entry in first.log.entries] == ["assistant", "tool"]
    assert first.log.entries[0].opaque == opaque
    assert not first.log.rebuilt


async def test_an_answer_that_comes_too_late_gets_no_lease_of_another(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    place = await driver.place(lease)
    (following,) = (await driver.store.steps.settle(lease, HM, place=place)).following
    await driver.finish(following)
    with pytest.raises(StaleLease):
        await driver.store.steps.settle(lease, HM, place=place)


async def test_a_delivery_of_it_is_a_stray(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    following = await taken(driver, lease)
    answer = await driver.store.steps.claim(
        run_id, lease.conversation_id, "2", queues=("model",), worker="w2", nonce="x", known=0
    )
    assert answer == Stray("leased")
    await driver.finish(following)


async def test_who_offers_nothing_is_sent_a_delivery(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    settled = await driver.store.steps.settle(lease, HM)
    assert not settled.following
    assert [delivery.step for delivery in settled.deliveries] == ["2"]


async def test_nobody_goes_on_while_somebody_waits(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    waiting = await driver.submit()
    ready = keys.ready(waiting.run_id[4:6], "model")
    (score,) = (await scores(driver, ready)).values()

    async def server_time() -> float:
        seconds, microseconds = await driver.redis.time()
        return float(seconds * 1000 + microseconds / 1000)

    await aeventually(lambda: _later(server_time, score + 101))
    settled = await go_on(driver, lease)
    assert not settled.following
    (delivery,) = settled.deliveries
    second = await driver.claim(delivery)
    # Nobody waits any more.
    await driver.finish(await driver.claim(waiting.deliveries[0]))
    assert (await go_on(driver, second)).following


async def _later(clock: Any, than: float) -> bool:
    return bool(await clock() > than)


async def test_a_pause_parks_what_would_have_followed(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, PAUSE)
    settled = await go_on(driver, lease)
    assert (settled.following, settled.deliveries) == ((), ())
    assert (await driver.get(run_id)).status == RunStatus.PAUSED
    acted = await driver.act(run_id, RESUME)
    assert [delivery.step for delivery in acted.settled.deliveries] == ["2"]


async def test_a_cancel_wins(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id)
    settled = await go_on(driver, lease)
    assert (settled.following, settled.status) == ((), RunStatus.CANCELLED)


async def test_a_cancel_after_it_ends_what_follows(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    following = await taken(driver, lease)
    await driver.store.runs.cancel(run_id)
    assert (await driver.get(run_id)).status == RunStatus.CANCELLING
    settled = await go_on(driver, following)
    assert (settled.following, settled.status) == ((), RunStatus.CANCELLED)


@pytest.mark.parametrize("ids", ["a", "ab"])
async def test_calls_of_tools_are_delivered(driver: StoreDriver, ids: str) -> None:
    _, lease = await driver.begin()
    settled = await go_on(driver, lease, calls(*ids))
    assert not settled.following
    assert [delivery.step for delivery in settled.deliveries] == [f"1/{call}" for call in ids]


async def test_a_step_that_is_tried_again_at_once_is_delivered(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    settled = await go_on(driver, lease, RetryAfter(0.0, RATE_LIMITED))
    assert not settled.following
    assert [(delivery.step, delivery.number) for delivery in settled.deliveries] == [("1", 2)]
    assert (await driver.claim(settled.deliveries[0])).attempt == 2


async def test_a_run_whose_time_is_up_does_not_go_on(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.redis.hset(keys.run(run_id), "deadline", 2)
    settled = await go_on(driver, lease)
    assert not settled.following
    assert [delivery.step for delivery in settled.deliveries] == ["2"]
    (ended,) = await driver.hasten(run_id, "end")
    assert ended.status == RunStatus.EXPIRED


async def test_room_for_all_who_wait_is_room_for_this_one(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    waiting = [await driver.submit() for _ in range(2)]
    for each in waiting:
        await driver.redis.zadd(keys.ready(each.run_id[4:6], "model"), {f"{each.run_id}/1": 1})
    place = await driver.place(lease)
    full = await driver.store.steps.settle(lease, HM, place=place._replace(room=1))
    assert not full.following
    second = await driver.claim(full.deliveries[0])
    place = await driver.place(second)
    assert (await driver.store.steps.settle(second, HM, place=place._replace(room=2))).following


async def test_what_the_user_said_meanwhile_is_answered_in_place(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, say("and quickly"))
    settled = await go_on(driver, lease, Finish(Message(role="assistant", content="done"), StopReason.END_TURN))
    assert [entry.message.text for entry in settled.following[0].log.entries] == ["hello", "done", "and quickly"]


async def test_limits_end_the_run_as_ever(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(agent=AgentSpec(model="fake/echo", max_steps=2))
    following = await taken(driver, lease)
    settled = await go_on(driver, following)
    assert (settled.following, settled.status) == ((), RunStatus.INCOMPLETE)
    assert (await driver.get(run_id)).stop_reason is StopReason.MAX_STEPS


async def test_the_next_run_of_the_conversation_is_not_begun_in_place(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    behind = await driver.submit(conversation_id=lease.conversation_id, on_conflict="enqueue")
    settled = await go_on(driver, lease, Finish(Message(role="assistant", content="done"), StopReason.END_TURN))
    assert (settled.following, settled.next_run) == ((), behind.run_id)


async def test_a_worker_that_dies_with_it_has_lost_it(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    following = await taken(driver, lease, worker="w1")
    (lost,) = await driver.lose(following)
    (delivery,) = lost.deliveries
    assert (delivery.step, delivery.number, delivery.queue) == ("2", 2, "model.recovered")
    again = await driver.claim(delivery, "w2")
    assert (again.try_number, again.attempt) == (2, 1)
    step = orjson.loads(await driver.redis.hget(keys.steps(run_id), "2"))
    assert step["losses"] == 1
