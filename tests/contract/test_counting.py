"""What is counted, and what is read off the lists. After every test of this folder the sums are checked (counts.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from palaver.errors import ErrorClass, Failure, ProviderDetails
from palaver.schemas.models import Message, Usage
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, Finish, GiveUp, Postpone, RetryAfter, ToolOutcome
from palaver.store import Store
from palaver.store.redis import keys, provider_keys
from palaver.telemetry.exposition import Times, Values
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.checkers.evidence import read_histories
from tests.checkers.sums import check_sums, counted, since
from tests.contract.store_driver import AGENT, PAUSE_NOW, StoreDriver, deny

NOT_FOUND = Failure.of(ErrorClass.NOT_FOUND)


async def _read(driver: StoreDriver, name: str) -> dict[tuple[str, ...], Any]:
    """The series of a metric that are not 0."""
    found: Values = (await driver.store.measuring.read(()))[name]
    return {labels: value for labels, value in found.items() if value}


async def _done(driver: StoreDriver, lease: Lease) -> None:
    await driver.finish(lease)


async def _failed(driver: StoreDriver, lease: Lease) -> None:
    await driver.give_up(lease)


async def _retried(driver: StoreDriver, lease: Lease) -> None:
    await driver.retry(lease)


async def _postponed(driver: StoreDriver, lease: Lease) -> None:
    await driver.postpone(lease)


async def _handed_back(driver: StoreDriver, lease: Lease) -> None:
    await driver.hand_back(lease)


async def _lost(driver: StoreDriver, lease: Lease) -> None:
    await driver.lose(lease)


async def _abandoned(driver: StoreDriver, lease: Lease) -> None:
    await driver.store.runs.cancel(lease.run_id)
    await driver.finish(lease)


async def _late(driver: StoreDriver, lease: Lease) -> None:
    await driver.redis.hset(keys.run(lease.run_id), "deadline", 1)
    await driver.hasten(lease.run_id, "end")


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        ("done", _done),
        ("failed", _failed),
        ("retried", _retried),
        ("postponed", _postponed),
        ("handed_back", _handed_back),
        ("lost", _lost),
        ("abandoned", _abandoned),
        ("abandoned", _late),
    ],
)
async def test_a_lease_has_one_outcome(
    driver: StoreDriver, outcome: str, end: Callable[[StoreDriver, Lease], Awaitable[None]]
) -> None:
    _, lease = await driver.begin()
    assert await _read(driver, "palaver_steps_total") == {}
    await end(driver, lease)
    assert await _read(driver, "palaver_steps_total") == {("model", outcome): 1}


async def test_what_is_told_twice_counts_once(driver: StoreDriver) -> None:
    with driver.answers_get_lost():
        _, lease = await driver.begin()
        verdict = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=_used(7, 2))
        await driver.store.steps.settle(lease, verdict)
    assert await _read(driver, "palaver_runs_submitted_total") == {(): 1}
    assert await _read(driver, "palaver_runs_finished_total") == {("completed", "end_turn", ""): 1}
    assert await _read(driver, "palaver_steps_total") == {("model", "done"): 1}
    assert await _read(driver, "palaver_tokens_total") == {("fake", "echo", "input"): 7, ("fake", "echo", "output"): 2}


async def test_who_lost_the_lease_counts_for_nothing(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    (settled,) = await driver.lose(lease)
    again = await driver.claim(settled.deliveries[0], "w2")
    with pytest.raises(Exception, match="lease"):
        await driver.finish(lease)
    await driver.finish(again)
    assert await _read(driver, "palaver_steps_total") == {("model", "lost"): 1, ("model", "done"): 1}
    assert await _read(driver, "palaver_recoveries_total") == {(): 1}


async def test_a_poisonous_step_is_lost_and_its_run_goes_on_no_more(driver: StoreDriver, settings: Any) -> None:
    _, lease = await driver.begin()
    for _ in range(settings.max_losses - 1):
        (settled,) = await driver.lose(lease)
        lease = await driver.claim(settled.deliveries[0])
    await driver.lose(lease)
    assert await _read(driver, "palaver_recoveries_total") == {(): settings.max_losses - 1}
    assert await _read(driver, "palaver_runs_finished_total") == {("failed", "error", "worker_lost"): 1}


async def test_failures_have_classes(driver: StoreDriver) -> None:
    _, (delivery, other) = await driver.turn("c1", "c2")
    lease = await driver.claim(delivery)
    assert lease.call is not None
    outcome = ToolOutcome.failed(lease.call, Failure.of(ErrorClass.TOOL_TIMEOUT))
    await driver.store.steps.settle(lease, Continue(outcomes=(outcome,)))
    last = await driver.claim(other)
    await driver.store.steps.settle(last, GiveUp(Failure.of(ErrorClass.INTERNAL), StopReason.ERROR))
    _, lease = await driver.begin()
    await driver.retry(lease)
    assert await _read(driver, "palaver_step_failures_total") == {("tool", "tool_timeout"): 1, ("tool", "internal"): 1}
    assert await _read(driver, "palaver_retries_total") == {("rate_limited",): 1}
    assert await _read(driver, "palaver_runs_finished_total") == {("failed", "error", "internal"): 1}


def _used(input_tokens: int, output_tokens: int, **more: Any) -> Usage:
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens, model_calls=1, **more)


async def test_tokens_have_one_type_each_and_costs_add_up_to_the_last_digit(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    usage = _used(100, 50, cached_tokens=60, cache_write_tokens=30, reasoning_tokens=20, cost_usd=0.1)
    await driver.store.steps.settle(lease, RetryAfter(0, NOT_FOUND, usage=usage))
    _, lease = await driver.begin()
    await driver.store.steps.settle(lease, GiveUp(NOT_FOUND, StopReason.ERROR, usage=_used(1, 0, cost_usd=0.2)))
    _, lease = await driver.begin()
    # A provider that says of more than there are that they were cached, and without a price.
    liar = _used(1, 1, cached_tokens=5, cache_write_tokens=5, reasoning_tokens=5)
    await driver.store.steps.settle(lease, Postpone(1.0, "cooldown", usage=liar))
    tokens = {kind: number for (_, _, kind), number in (await _read(driver, "palaver_tokens_total")).items()}
    assert tokens == {"input": 11, "cache_read": 61, "cache_write": 30, "output": 30, "reasoning": 21}
    assert await _read(driver, "palaver_cost_usd_total") == {("fake", "echo"): Decimal("0.3")}
    assert await _read(driver, "palaver_unpriced_steps_total") == {("fake", "echo"): 1}
    assert await _read(driver, "palaver_model_calls_total") == {("fake", "echo"): 3}


async def test_a_fallback_is_counted_as_what_it_is(driver: StoreDriver) -> None:
    agent = AGENT.model_copy(update={"fallbacks": ("other/mini",)})
    _, lease = await driver.begin(agent=agent)
    settled = await driver.store.steps.settle(lease, RetryAfter(0, NOT_FOUND, fallback=True, usage=_used(3, 0)))
    lease = await driver.claim(settled.deliveries[0])
    await driver.store.steps.settle(
        lease, Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=_used(5, 0))
    )
    assert await _read(driver, "palaver_tokens_total") == {("fake", "echo", "input"): 3, ("other", "mini", "input"): 5}


async def _ask(driver: StoreDriver, model: str, usage: Usage) -> None:
    _, lease = await driver.begin(agent=AGENT.model_copy(update={"model": model}))
    await driver.store.steps.settle(
        lease, Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=usage)
    )


@pytest.mark.slow
async def test_so_many_models_have_a_name_and_no_tokens_are_lost(driver: StoreDriver) -> None:
    many = limit_of("metric_models") + 5
    await _ask(driver, "fake/typo", _used(0, 0))
    for number in range(many):
        await _ask(driver, f"fake/m{number}", _used(2, 0))
    await _ask(driver, "fake/m0", _used(1, 0))
    await _ask(driver, "fake/typo", _used(4, 0))
    tokens = await _read(driver, "palaver_tokens_total")
    assert len(tokens) == limit_of("metric_models") + 1
    assert tokens["fake", "m0", "input"] == 3
    assert tokens["fake", "other", "input"] == 5 * 2 + 4
    calls = await _read(driver, "palaver_model_calls_total")
    assert calls["fake", "other"] == 1 + 5 + 1
    assert {(provider, model) for provider, model, _ in tokens} == calls.keys()


async def test_how_long_runs_and_cancels_took(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    created = await _ago(driver, 70_000)
    await driver.redis.hset(keys.run(lease.run_id), "created_at", created)
    for listed in (None, "running"):
        await driver.redis.zadd(keys.runs("00", listed), {lease.run_id: created})
    await driver.store.runs.cancel(lease.run_id)
    await driver.finish(lease)
    durations = await _read(driver, "palaver_run_duration_seconds")
    (times,) = durations.values()
    assert isinstance(times, Times)
    assert durations.keys() == {("cancelled",)}
    assert times.buckets[4] == sum(times.buckets) == 1, "between one and five minutes"
    assert 70 <= times.sum < 300
    (cancels,) = (await _read(driver, "palaver_cancel_duration_seconds")).values()
    assert sum(cancels.buckets) == 1


async def _ago(driver: StoreDriver, ms: int) -> int:
    return int((await driver.store.runs.now()).timestamp() * 1000) - ms


async def test_what_runs_wait_for_and_since_when(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    behind = await driver.submit(conversation_id=lease.conversation_id)
    await driver.retry(lease)
    assert await _read(driver, "palaver_waiting") == {("backoff",): 1, ("conversation_busy",): 1}
    await driver.redis.zadd(keys.waiting("00", "backoff"), {run_id: await _ago(driver, 30_000)})
    oldest = (await _read(driver, "palaver_waiting_oldest_seconds"))["backoff",]
    assert 30 <= oldest < 300
    (settled,) = await driver.hasten(run_id, "1")
    lease = await driver.claim(settled.deliveries[0])
    assert await _read(driver, "palaver_waiting") == {("conversation_busy",): 1}
    await driver.store.steps.settle(lease, Postpone(60.0, "cooldown"))
    assert await _read(driver, "palaver_waiting") == {("provider_cooldown",): 1, ("conversation_busy",): 1}
    await driver.store.runs.cancel(run_id)
    await driver.sweep(behind.run_id, "start")
    assert await _read(driver, "palaver_waiting") == {}


async def test_who_waits_for_the_same_again_has_waited_since_the_first_time(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("c1", "c2", approval=("c1", "c2"))
    began = await _ago(driver, 30_000)
    await driver.redis.zadd(keys.waiting("00", "approval"), {run_id: began})
    await driver.act(run_id, deny((await driver.action(run_id, "c1")).id))
    assert await driver.redis.zscore(keys.waiting("00", "approval"), run_id) == began


async def test_pending_actions(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("c1", "c2", "c3", approval=("c1", "c2"), client=("c3",))
    assert await _read(driver, "palaver_pending_actions") == {("approval",): 2, ("client_tool",): 1}
    assert await _read(driver, "palaver_waiting") == {("approval",): 1}
    await driver.redis.zadd(keys.pending("00", "client_tool"), {f"{run_id}/c3": await _ago(driver, 9000)})
    assert (await _read(driver, "palaver_pending_actions_oldest_seconds"))["client_tool",] >= 9
    await driver.act(run_id, deny((await driver.action(run_id, "c1")).id))
    assert await _read(driver, "palaver_pending_actions") == {("approval",): 1, ("client_tool",): 1}
    await driver.hasten(run_id, "1/c2")
    assert await _read(driver, "palaver_pending_actions") == {("client_tool",): 1}
    await driver.store.runs.cancel(run_id)
    assert await _read(driver, "palaver_pending_actions") == {}


async def test_a_paused_run_waits_for_nothing(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.retry(lease)
    await driver.act(run_id, PAUSE_NOW)
    assert await _read(driver, "palaver_waiting") == {}
    assert await _read(driver, "palaver_runs") == {("paused",): 1}


async def test_what_is_due_and_nobody_sweeps(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    assert await _read(driver, "palaver_overdue_seconds") == {}
    await driver.redis.zadd(keys.due("00"), {f"{run_id}/1": await _ago(driver, 9000)})
    assert (await _read(driver, "palaver_overdue_seconds"))[()] >= 9
    await driver.finish(lease)
    assert await _read(driver, "palaver_overdue_seconds") == {}


async def test_runs_that_vanished_are_forgotten_with_what_they_waited_for(driver: StoreDriver) -> None:
    waits, lease = await driver.begin()
    queued = await driver.submit(conversation_id=lease.conversation_id)
    await driver.ask(lease, "c1", approval=("c1",))
    for run_id in (waits, queued.run_id):
        await driver.redis.delete(keys.run(run_id), keys.steps(run_id), keys.feed(run_id))
    await driver.redis.delete(keys.conversation(lease.conversation_id), keys.log(lease.conversation_id))
    for order in ("", ":updated"):
        await driver.redis.zrem(keys.conversations("00", order), lease.conversation_id)
    for run_id, what in ((waits, "1/c1"), (waits, "end"), (queued.run_id, "end")):
        await driver.sweep(run_id, what)
    for name in ("palaver_runs", "palaver_waiting", "palaver_pending_actions"):
        assert await _read(driver, name) == {}


@pytest.mark.slow
async def test_shards_are_added_up(redis: Any, settings: Any) -> None:
    store = Store(redis, settings.model_copy(update={"shards": 40}))
    driver = StoreDriver(store, redis)
    ended = 0
    for _ in range(30):
        _, lease = await driver.begin()
        await store.steps.settle(
            lease, Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=_used(2, 1))
        )
        ended += 1
    assert len(await redis.keys("*:counts")) > 1
    assert await _read(driver, "palaver_runs_finished_total") == {("completed", "end_turn", ""): ended}
    assert (await _read(driver, "palaver_tokens_total"))["fake", "echo", "input"] == 2 * ended
    assert await _read(driver, "palaver_runs") == {("completed",): ended}


async def test_what_newer_code_counts_is_left_out(driver: StoreDriver) -> None:
    await driver.begin()
    await driver.redis.hset(keys.counts("00"), mapping={"what_is_this a b": 3, "steps model done more": 1})
    assert await _read(driver, "palaver_steps_total") == {}
    await driver.redis.hdel(keys.counts("00"), "what_is_this a b", "steps model done more")


async def test_outages_are_counted_as_long_as_they_last(driver: StoreDriver) -> None:
    async def told() -> Any:
        return (await driver.store.measuring.read(["fake"]))["palaver_provider_outages"]["fake",]

    refused = Failure.of(ErrorClass.CONNECTION, provider=ProviderDetails("fake", "echo"))
    for gate, outages in (("fake", 1), ("fake/echo", 2)):
        for i in range(5):
            await driver.store.providers.report_failure(gate, f"c{i}", refused, counts_as=f"c{i}", answered=None)
        assert await told() == outages
    await driver.behind(datetime.now(UTC))
    await driver.store.providers.report_answer("fake", "c0")
    assert await told() == 1


async def test_cool_downs_are_counted_as_they_begin(driver: StoreDriver) -> None:
    async def told() -> tuple[Any, Any]:
        found = await driver.store.measuring.read(["fake"])
        return found["palaver_provider_cooling"]["fake",], found["palaver_provider_cooldowns_total"]["fake",]

    assert await told() == (0, 0)
    with driver.answers_get_lost():
        await driver.store.providers.cool_down("fake", 30)
    await driver.store.providers.cool_down("fake", 60)
    assert await told() == (1, 1)
    await driver.redis.hset(provider_keys.of_gate("fake").gate, "until", 1)
    assert await told() == (0, 1)
    await driver.store.providers.cool_down("fake", 30)
    assert await told() == (1, 2)


async def test_the_checker_of_sums_sees_one_too_many_of_anything(driver: StoreDriver) -> None:
    before = await counted(driver.store)
    run_id, lease = await driver.begin()
    verdict = RetryAfter(0, NOT_FOUND, usage=_used(5, 3))
    (delivery,) = (await driver.store.steps.settle(lease, verdict)).deliveries
    await driver.lose(await driver.claim(delivery))
    (delivery,) = (await driver.sweep(run_id, "1", unclaimed_after=-60))[0].deliveries
    await driver.give_up(await driver.claim(delivery))
    cancelled, lease = await driver.begin()
    await driver.store.runs.cancel(cancelled)
    await driver.lose(lease)
    histories = await read_histories(driver.store, [run_id, cancelled])
    check_sums(since(before, await counted(driver.store)), histories)
    counts = keys.counts("00")
    for series in await driver.redis.hkeys(counts):
        # Costs are compared to the last digit by counts.py: runs do not tell what a part of their calls cost.
        if series.startswith((b"models", b"unpriced_steps")) or series.endswith(b" sum"):
            continue
        await driver.redis.hincrby(counts, series, 1)
        with pytest.raises(AssertionError):
            check_sums(since(before, await counted(driver.store)), histories)
        await driver.redis.hincrby(counts, series, -1)
