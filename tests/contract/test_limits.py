"""The limits of a run: a warning once at 80 %, an end before the next call or on time, and everything done is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import ErrorClass, Failure
from palaver.schemas.models import AgentSpec, Budget, Message, ToolCall, Usage
from palaver.steps.leases import Lease, Settled
from palaver.steps.verdicts import Continue, Finish, GiveUp, OpenCall, RetryAfter, ToolOutcome
from palaver.store.fleet.fleet import Interruption
from palaver.store.redis import keys
from palaver.vocabulary.ids import shard_of
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.contract.store_driver import RATE_LIMITED, StoreDriver
from tests.waiting import aeventually

TIMED_OUT = Failure.of(ErrorClass.TIMEOUT)


def used(tokens: int = 0, cost: float | None = 0.0) -> Usage:
    return Usage(input_tokens=tokens, model_calls=1, cost_usd=cost)


async def calls_inline(driver: StoreDriver, lease: Lease, usage: Usage, *ids: str) -> Settled:
    """A model call that took ``usage``, with inline tools that are answered already."""
    calls = tuple(ToolCall(id=call_id, name="calculator") for call_id in ids or ("c1",))
    outcomes = tuple(ToolOutcome(Message(role="tool", call_id=c.id, name=c.name, content="42")) for c in calls)
    message = Message(role="assistant", tool_calls=calls)
    return await driver.store.steps.settle(lease, Continue(message, outcomes, usage=usage))


async def goes_on(driver: StoreDriver, lease: Lease, usage: Usage) -> Lease:
    (delivery,) = (await calls_inline(driver, lease, usage)).deliveries
    return await driver.claim(delivery)


async def warnings(driver: StoreDriver, run_id: str) -> list[dict[str, Any]]:
    return [event.data for event in await driver.events(run_id) if event.type == "budget.warning"]


async def started_before(driver: StoreDriver, run_id: str, seconds: float) -> None:
    """The run is taken for one that began so long ago; what is due stays due when it was."""
    now, moved = await driver.redis.time(), {}
    at = int(now[0] * 1000 + now[1] / 1000 - seconds * 1000)
    for field in ("created_at", "started_at"):
        if await driver.redis.hexists(keys.run(run_id), field):
            moved[field] = at
    await driver.redis.hset(keys.run(run_id), mapping=moved)
    shard, status = shard_of(run_id), (await driver.get(run_id)).status
    for index in (keys.runs(shard), keys.runs(shard, status)):
        await driver.redis.zadd(index, {run_id: at}, xx=True)


async def test_tokens_are_looked_at_before_each_call(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(tokens=100))
    lease = await goes_on(driver, lease, used(79))
    assert await warnings(driver, run_id) == []
    lease = await goes_on(driver, lease, used(1))
    lease = await goes_on(driver, lease, used(10))
    assert await warnings(driver, run_id) == [{"what": "tokens", "used": 80, "limit": 100}]
    settled = await calls_inline(driver, lease, used(10))

    assert (settled.status, settled.deliveries) == ("incomplete", ())
    run = await driver.get(run_id)
    assert (run.stop_reason, run.error, run.usage.input_tokens) == (StopReason.BUDGET, None, 100)
    assert len(await warnings(driver, run_id)) == 1
    assert [text for _, text in await driver.results(run_id)] == ["42"] * 4


async def test_the_cost_is_added_up_without_drift_and_looked_at_before_each_call(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(cost_usd=1.0))
    for _ in range(9):
        lease = await goes_on(driver, lease, used(cost=0.1))
    assert await warnings(driver, run_id) == [{"what": "cost_usd", "used": 0.8, "limit": 1.0}]
    # Nine times 0.1 are 0.8999999999999999 to a float.
    assert (await driver.get(run_id)).usage.cost_usd == 0.9
    settled = await calls_inline(driver, lease, used(cost=0.1))

    assert settled.status == "incomplete"
    run = await driver.get(run_id)
    assert (run.stop_reason, run.usage.cost_usd) == (StopReason.BUDGET, 1.0)


async def test_the_cheapest_call_counts(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await goes_on(driver, lease, used(cost=0.000_000_001))
    assert (await driver.get(run_id)).usage.cost_usd == 0.000_000_001


async def test_a_call_without_a_price_makes_the_cost_unknown(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    assert (await driver.get(run_id)).usage.cost_usd == 0.0
    lease = await goes_on(driver, lease, used(cost=0.1))
    lease = await goes_on(driver, lease, used(cost=None))
    lease = await goes_on(driver, lease, used(cost=0.1))
    await driver.finish(lease)
    run = await driver.get(run_id)
    assert (run.status, run.usage.cost_usd) == (RunStatus.COMPLETED, None)


async def test_a_budget_in_dollars_does_not_go_on_when_the_cost_is_unknown(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(cost_usd=5.0))
    settled = await calls_inline(driver, lease, used(cost=None))
    assert settled.status == "incomplete"
    assert (await driver.get(run_id)).stop_reason is StopReason.BUDGET
    assert await warnings(driver, run_id) == [{"what": "cost_usd", "used": None, "limit": 5.0}]


async def test_a_failed_attempt_counts_and_is_not_repeated_beyond_the_budget(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(cost_usd=1.0))
    settled = await driver.store.steps.settle(lease, RetryAfter(1.0, RATE_LIMITED, usage=used(7, 0.5)))
    assert settled.status == "running"
    (settled,) = await driver.hasten(run_id, "1")
    lease = await driver.claim(settled.deliveries[0])
    settled = await driver.store.steps.settle(lease, RetryAfter(1.0, RATE_LIMITED, usage=used(7, 0.5)))

    assert settled.status == "incomplete"
    run = await driver.get(run_id)
    assert (run.stop_reason, run.error, run.usage.input_tokens) == (StopReason.BUDGET, None, 14)
    assert (await driver.kinds(run_id)).count("run.retrying") == 1


async def test_a_cancelled_call_counts(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(cost_usd=1.0))
    await driver.store.runs.cancel(run_id)
    verdict = Finish(None, StopReason.CANCELLED, used(9, 3.0))
    settled = await driver.store.steps.settle(lease, verdict)
    assert settled.status == "cancelled"
    run = await driver.get(run_id)
    assert (run.usage.input_tokens, run.usage.cost_usd) == (9, 3.0)


async def test_the_last_answer_is_kept_however_much_it_took(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(tokens=1, cost_usd=0.1))
    verdict = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, used(500, 2.0))
    assert (await driver.store.steps.settle(lease, verdict)).status == "completed"
    assert (await driver.get(run_id)).output == "bye"


async def test_a_turn_takes_its_tool_calls_from_the_budget_before_any_begins(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(tool_calls=5))
    assert lease.calls_left == 5
    deliveries = await driver.ask(lease, "c1", "c2", "c3")
    assert len(deliveries) == 3
    for delivery in deliveries:
        settled = await driver.answer(await driver.claim(delivery))
    lease = await driver.claim(settled.deliveries[0])
    assert (lease.calls_left, await warnings(driver, run_id)) == (2, [])

    assert await driver.ask(lease, "d1", "d2", "d3") == []
    run = await driver.get(run_id)
    assert (run.status, run.stop_reason, run.usage.tool_calls) == ("incomplete", "budget", 3)
    assert await warnings(driver, run_id) == [{"what": "tool_calls", "used": 6, "limit": 5}]
    assert [text for _, text in await driver.results(run_id)][3:] == ["Not started: the run ended (budget)."] * 3


@pytest.mark.parametrize("ends", ["retried", "lost", "interrupted", "given up"])
async def test_a_tool_call_is_taken_from_the_budget_once_however_it_goes(driver: StoreDriver, ends: str) -> None:
    run_id, lease = await driver.begin(budget=Budget(tool_calls=2))
    (delivery,) = await driver.ask(lease, "c1", idempotent=() if ends == "interrupted" else ("c1",))
    tool = await driver.claim(delivery)
    match ends:
        case "retried":
            await driver.retry(tool)
            (settled,) = await driver.hasten(run_id, "1/c1")
        case "lost":
            (settled,) = await driver.lose(tool)
        case "interrupted":
            (settled,) = await driver.lose(tool)
        case _:
            settled = await driver.store.steps.settle(tool, GiveUp(Failure.of(ErrorClass.TOOL_ERROR), StopReason.ERROR))
    if ends in ("retried", "lost"):
        settled = await driver.answer(await driver.claim(settled.deliveries[0]))
    lease = await driver.claim(settled.deliveries[0])
    assert lease.calls_left == 1
    assert len(await driver.ask(lease, "d1")) == 1
    assert [each["used"] for each in await warnings(driver, run_id)] == [2]


async def test_inline_calls_and_steps_share_the_budget(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(tool_calls=3))
    lease = await goes_on(driver, lease, used())
    assert lease.calls_left == 2
    calls = tuple(ToolCall(id=call_id, name="calculator") for call_id in ("d1", "d2", "d3"))
    message = Message(role="assistant", tool_calls=calls)
    opened = tuple(OpenCall(call, False) for call in calls)
    settled = await driver.store.steps.settle(lease, Continue(message, calls=opened))
    assert (settled.status, settled.deliveries) == ("incomplete", ())
    assert (await driver.get(run_id)).usage.tool_calls == 1


@pytest.mark.parametrize(("limit", "refused"), [(3, ()), (2, ("c1", "c2", "c3"))])
async def test_the_log_says_with_a_message_that_the_budget_has_no_room_for_its_calls(
    driver: StoreDriver, limit: int, refused: tuple[str, ...]
) -> None:
    _, lease = await driver.begin(budget=Budget(tool_calls=limit))
    begun = await driver.ask(lease, "c1", "c2", "c3")
    assert len(begun) == 3 - len(refused)
    entries = await driver.store.runs.entries(lease.conversation_id, limit=100)
    (asked,) = (entry.data for entry in entries if entry.data.get("risky_calls") is not None)
    assert tuple(asked.get("refused_calls", ())) == refused


async def test_steps_are_warned_of_once(driver: StoreDriver) -> None:
    agent = AgentSpec(model="fake/echo", max_steps=5)
    run_id, lease = await driver.begin(agent=agent)
    for made in range(1, 5):
        lease = await goes_on(driver, lease, used())
        assert len(await warnings(driver, run_id)) == (made == 4)
    settled = await calls_inline(driver, lease, used())
    assert settled.status == "incomplete"
    assert (await driver.get(run_id)).stop_reason is StopReason.MAX_STEPS
    assert await warnings(driver, run_id) == [{"what": "max_steps", "used": 4, "limit": 5}]


async def test_the_seconds_count_from_the_start_of_the_run(driver: StoreDriver) -> None:
    submitted = await driver.submit(budget=Budget(seconds=100.0))
    before = await driver.redis.zscore(keys.due("00"), f"{submitted.run_id}/end")
    lease = await driver.claim(submitted.deliveries[0])
    after = await driver.redis.zscore(keys.due("00"), f"{submitted.run_id}/end")
    assert after < before
    assert lease.time_left == 100.0


async def test_the_seconds_are_warned_of_and_end_a_call_that_hangs(driver: StoreDriver) -> None:
    run_id, _ = await driver.begin(budget=Budget(seconds=100.0))
    async with driver.hearing("w1") as heard:
        await started_before(driver, run_id, 85)
        for _ in range(3):
            (settled,) = await driver.hasten(run_id, "end")
            assert settled.status == "running"
        (warning,) = await warnings(driver, run_id)
        assert (warning["what"], warning["limit"]) == ("seconds", 100)
        assert 85 <= warning["used"] < 90

        await started_before(driver, run_id, 100)
        (settled,) = await driver.hasten(run_id, "end")
        assert settled.status == "incomplete"
        run = await driver.get(run_id)
        assert (run.stop_reason, run.error) == (StopReason.BUDGET, None)
        assert await aeventually(lambda: heard) == [Interruption(run_id, pausing=False)]
    assert len(await warnings(driver, run_id)) == 1


async def test_nothing_begins_when_the_seconds_are_over(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(seconds=10.0))
    (delivery,) = await driver.ask(lease, "c1")
    await started_before(driver, run_id, 11)
    stray = await driver.try_claim(delivery)
    assert not isinstance(stray, Lease)
    await driver.hasten(run_id, "end")
    assert await driver.results(run_id) == [("c1", "Not started: the run ended (budget).")]


async def test_the_deadline_is_warned_of_once(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(deadline=datetime.now(UTC) + timedelta(seconds=20))
    await started_before(driver, run_id, 100)
    for _ in range(3):
        (settled,) = await driver.hasten(run_id, "end")
        assert settled.status == "running"
    (warning,) = await warnings(driver, run_id)
    assert warning["what"] == "deadline"
    assert 115 < warning["limit"] < 121
    await driver.finish(lease)


@pytest.mark.parametrize("limit", ["deadline", "seconds"])
@pytest.mark.parametrize("brings", ["retry", "give up"])
async def test_what_the_clock_cut_off_did_not_fail(driver: StoreDriver, limit: str, brings: str) -> None:
    """The worker's own timeout may come before the sweeper does."""
    run_id, lease = await driver.begin(budget=Budget(seconds=10.0))
    if limit == "seconds":
        await started_before(driver, run_id, 11)
    else:
        await driver.redis.hset(keys.run(run_id), "deadline", 2)
    settled = await (driver.retry(lease, failure=TIMED_OUT) if brings == "retry" else driver.give_up(lease, TIMED_OUT))
    run = await driver.get(run_id)
    assert run.error is None
    assert settled.status == ("incomplete" if limit == "seconds" else "expired")
    assert "run.retrying" not in await driver.kinds(run_id)


async def test_a_run_that_is_being_cancelled_is_not_warned_and_ends_as_cancelled(driver: StoreDriver) -> None:
    run_id, _ = await driver.begin(budget=Budget(seconds=100.0))
    await driver.store.runs.cancel(run_id)
    await started_before(driver, run_id, 90)
    (settled,) = await driver.hasten(run_id, "end")
    assert (settled.status, await warnings(driver, run_id)) == ("cancelling", [])
    await started_before(driver, run_id, 100)
    (settled,) = await driver.hasten(run_id, "end")
    assert settled.status == "cancelled"


async def test_the_run_shows_its_budget_and_what_is_used(driver: StoreDriver) -> None:
    budget = Budget(tokens=100, cost_usd=0.5, tool_calls=3, seconds=60)
    run_id, lease = await driver.begin(budget=budget)
    usage = Usage(
        input_tokens=30, cached_tokens=20, cache_write_tokens=7, output_tokens=4, reasoning_tokens=3, model_calls=2,
        cost_usd=0.25,
    )  # fmt: skip
    await calls_inline(driver, lease, usage)
    run = await driver.get(run_id)
    assert run.budget == budget
    assert run.usage == usage.model_copy(update={"tool_calls": 1})
