"""Statistics: what happened is in the span in which it happened, once, and is its tenant's."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import orjson
import pytest

from features.statistics import statistics, statistics_keys
from features.statistics.histograms import bucket_of
from features.statistics.statistics import Statistics
from features.statistics.tallies import VERSION, SpanTally
from features.statistics.windows import LASTS, WINDOWS, WindowName
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure
from palaver.schemas.models import Message, Usage
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Finish, GiveUp, HandBack, RetryAfter
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting import scripts
from palaver.store.scripting.additions import all_hooks
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.contract.clock import Clock
from tests.contract.store_driver import AGENT, StoreDriver

ACME, OTHER = "acme00", "0ther0"
USED = Usage(input_tokens=100, cached_tokens=60, output_tokens=7, model_calls=1, cost_usd=0.25)
DONE = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=USED)
BROKEN = Failure.of(ErrorClass.PROVIDER_ERROR)


async def total(store: Store, window: WindowName = "hour", tag: str | None = None) -> SpanTally:
    """What happened within the window."""
    whole = SpanTally()
    for tally in (await store.part(Statistics).read(WINDOWS[window], tag))[1].values():
        whole.merge(tally)
    return whole


async def finish(driver: StoreDriver, **agent: Any) -> None:
    _, lease = await driver.begin(agent=AGENT.model_copy(update=agent))
    await driver.store.steps.settle(lease, DONE)


@pytest.mark.parametrize("window", WINDOWS)
async def test_what_happened_is_counted(driver: StoreDriver, window: WindowName) -> None:
    await finish(driver)
    _, lease = await driver.begin()
    await driver.store.steps.settle(lease, RetryAfter(0.0, BROKEN, 5))
    run_id, _ = await driver.begin()
    await driver.store.runs.cancel(run_id)
    tally = await total(driver.store, window)
    assert tally.runs == {"submitted": 3, "completed": 1}
    assert tally.steps == {"model done": 1, "model retried": 1}
    assert tally.step_errors == {"provider_error": 1}
    assert tally.waited.total() == tally.called.total() == 2
    used = Counter(calls=1, input_tokens=100, output_tokens=7, cost=250_000_000)
    assert {name: +numbers for name, numbers in tally.models.items()} == {AGENT.model: used}


async def test_a_run_that_fails_says_why(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.store.steps.settle(lease, GiveUp(BROKEN, StopReason.ERROR))
    tally = await total(driver.store)
    assert (tally.runs["failed"], tally.run_errors, tally.step_errors) == (
        1,
        {"provider_error": 1},
        {"provider_error": 1},
    )


async def test_what_is_repeated_as_its_answer_was_lost_counts_once(driver: StoreDriver) -> None:
    with driver.answers_get_lost():
        await finish(driver)
        await driver.store.part(Statistics).fold()
    tally = await total(driver.store)
    assert (tally.runs, tally.steps) == ({"submitted": 1, "completed": 1}, {"model done": 1})
    assert tally.models[AGENT.model]["calls"] == 1


async def test_many_who_fold_together_count_each_line_once(driver: StoreDriver, redis: Any, store: Store) -> None:
    for _ in range(20):
        await finish(driver)
        await asyncio.gather(*(store.part(Statistics).fold() for _ in range(5)))
    assert (await total(store)).runs == {"submitted": 20, "completed": 20}
    assert await redis.xlen(statistics_keys.journal("00")) == 0


async def test_who_is_overtaken_while_folding_changes_nothing(
    driver: StoreDriver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has read was folded meanwhile, and more has happened since."""
    await finish(driver)
    merge = statistics._merge_stored

    async def overtaken(redis: Any, tallies: Any) -> None:
        monkeypatch.setattr(statistics, "_merge_stored", merge)
        await merge(redis, tallies)
        await store.part(Statistics).fold()
        await finish(driver)

    monkeypatch.setattr(statistics, "_merge_stored", overtaken)
    assert await statistics.fold_some(driver.redis, store.scripts, "00"), "there is more for it to fold"
    assert (await total(store)).runs == {"submitted": 2, "completed": 2}


async def test_what_is_handed_back_was_used_all_the_same(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.store.steps.settle(lease, HandBack(True, USED))
    tally = await total(driver.store)
    assert (tally.steps, tally.called) == ({"model handed_back": 1}, {})
    assert tally.models[AGENT.model]["input_tokens"] == 100


async def test_calls_of_tools_are_no_calls_of_models(driver: StoreDriver) -> None:
    _, deliveries = await driver.turn("a")
    lease = await driver.claim(deliveries[0])
    assert isinstance(lease, Lease)
    await driver.answer(lease)
    tally = await total(driver.store)
    assert tally.steps == {"model done": 1, "tool done": 1}
    assert (tally.waited.total(), tally.called.total()) == (2, 1)


async def test_what_a_call_used_is_not_what_those_beside_it_used(driver: StoreDriver) -> None:
    """It ends the run, and with that their leases, in the same script."""
    _, deliveries = await driver.turn("a", "b")
    lease, _ = [await driver.claim(delivery) for delivery in deliveries]
    await driver.store.steps.settle(lease, GiveUp(Failure.of(ErrorClass.INTERNAL), StopReason.ERROR, usage=USED))
    tally = await total(driver.store)
    assert (tally.steps["tool failed"], tally.steps["tool abandoned"]) == (1, 1)
    assert tally.models[AGENT.model]["input_tokens"] == 100


async def test_a_tenant_has_its_own_and_sees_no_others(driver: StoreDriver, store: Store) -> None:
    for tag in ("", ACME, OTHER):
        with within(Reach(tag)):
            await finish(driver, model=f"fake/{tag or 'default'}")
    for tag in ("", ACME, OTHER):
        with within(Reach(tag)):
            own = await total(store)
            assert [*own.models] == [f"fake/{tag or 'default'}"]
            assert await total(store, tag=tag) == own
            assert (await total(store, tag=ACME if tag != ACME else OTHER)) == SpanTally()
        assert [*(await total(store, tag=tag)).models] == [f"fake/{tag or 'default'}"]
    assert sorted((await total(store)).models) == ["fake/0ther0", "fake/acme00", "fake/default"]


async def test_a_tenant_that_thinks_of_many_models_has_some_of_them(driver: StoreDriver, store: Store) -> None:
    for number in range(limit_of("statistics_models") + 3):
        await finish(driver, model=f"fake/{number}")
    found = (await total(store)).models
    assert (len(found), found["other"]["calls"]) == (limit_of("statistics_models") + 1, 3)


async def test_what_happened_is_in_the_span_in_which_it_did(clock: Clock, driver: StoreDriver, store: Store) -> None:
    began = clock.now
    await driver.submit("hello")
    clock.now += 600
    _, lease = await driver.begin()
    clock.now += 7
    await store.steps.settle(lease, DONE)
    present, spans = await store.part(Statistics).read(WINDOWS["hour"])
    assert {number: tally.runs for number, tally in spans.items()} == {
        int(began // 60): {"submitted": 1},
        int(clock.now // 60): {"submitted": 1, "completed": 1},
    }
    assert spans[present].called == {bucket_of(7000): 1}


@pytest.mark.parametrize("name", WINDOWS)
async def test_what_happened_passes_with_its_window(
    clock: Clock, driver: StoreDriver, store: Store, name: WindowName
) -> None:
    window, first = WINDOWS[name], await total(store, name)
    assert first == SpanTally()
    await finish(driver)
    number = window.number(int(clock.now * 1000))
    clock.now = float((number + window.spans - 1) * window.seconds)
    assert (await total(store, name)).runs == {"submitted": 1, "completed": 1}
    clock.now += window.seconds
    assert await total(store, name) == SpanTally()


@pytest.mark.slow
async def test_a_tenant_keeps_no_more_spans_than_its_windows_have(
    clock: Clock, driver: StoreDriver, store: Store
) -> None:
    for _ in range(80):
        await driver.submit("hello")
        await store.part(Statistics).fold()
        clock.now += 7 * 60
    names = [name.decode() for name in await driver.redis.hkeys(statistics_keys.statistics("00"))]
    of = Counter(name.partition(":")[0] for name in names)
    assert of["hour"] == WINDOWS["hour"].spans + 4
    assert (await total(store)).runs == {"submitted": 8}


async def test_they_go_some_time_after_the_last(driver: StoreDriver, redis: Any, store: Store) -> None:
    await finish(driver)
    await store.part(Statistics).fold()
    assert LASTS - 60 <= await redis.ttl(statistics_keys.statistics("00")) <= LASTS


async def test_lines_that_nobody_folds_are_bounded(redis: Any, store: Store, driver: StoreDriver) -> None:
    """Redis lets go whole nodes of a stream, so that there may be a few more."""
    most = limit_of("statistics_journal")
    pipeline = redis.pipeline(transaction=False)
    for _ in range(most + 300):
        pipeline.xadd(statistics_keys.journal("00"), {"line": "1@acme00: submitted "})
    await pipeline.execute()
    await finish(driver)
    assert await redis.xlen(statistics_keys.journal("00")) <= most + 100
    # The invariants compare statistics with counts.
    await redis.flushall()


async def test_without_it_scripts_write_nothing_of_it(
    redis: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = {place: [part for part in parts if "note" not in part] for place, parts in all_hooks().items()}
    monkeypatch.setattr(scripts, "_sources", scripts._Sources)
    monkeypatch.setattr(scripts, "all_hooks", lambda: hooks)
    driver = StoreDriver(Store(redis, settings), redis)
    await finish(driver)
    _, lease = await driver.begin()
    assert b"waited" not in await redis.hget(keys.steps(lease.run_id), lease.step)
    assert not await redis.exists(statistics_keys.journal("00"))
    # The invariants compare statistics with counts.
    await redis.flushall()


async def test_a_line_that_cannot_be_read_holds_up_no_other(redis: Any, store: Store, driver: StoreDriver) -> None:
    for words in ("model done - 0 5 p/m 1 1 1 1.5e+14", "model done - soon 5", ""):
        await redis.xadd(statistics_keys.journal("00"), {"line": f"1 {words}"})
    await finish(driver)
    assert (await total(store)).runs == {"submitted": 1, "completed": 1}


async def test_a_cost_beyond_all_reason_is_written_in_full(driver: StoreDriver, store: Store) -> None:
    _, lease = await driver.begin()
    used = Usage(input_tokens=10**9, output_tokens=10**9, model_calls=1, cost_usd=150_000.25)
    await driver.store.steps.settle(lease, DONE.__class__(DONE.message, DONE.stop_reason, usage=used))
    (numbers,) = (await total(store)).models.values()
    assert numbers["cost"] == 150_000_250_000_000


async def test_tallies_without_a_version_are_read_and_added_to(driver: StoreDriver, store: Store) -> None:
    await finish(driver)
    await store.part(Statistics).fold()
    key = statistics_keys.statistics("00", keys.DEFAULT_TENANT)
    for place, text in (await driver.redis.hgetall(key)).items():
        told = orjson.loads(text)
        assert told["v"] == VERSION
        await driver.redis.hset(key, place, orjson.dumps([told["number"], *told["tally"]]))
    assert (await total(store)).runs == {"submitted": 1, "completed": 1}
    await finish(driver)
    assert (await total(store)).runs == {"submitted": 2, "completed": 2}


async def test_tallies_of_a_newer_version_are_left_to_it(driver: StoreDriver, store: Store) -> None:
    """Its processes fold what is there, and show it. Spans that are over are written anew."""
    await finish(driver)
    await store.part(Statistics).fold()
    key = statistics_keys.statistics("00", keys.DEFAULT_TENANT)
    before = await driver.redis.hgetall(key)
    newer = {
        place: orjson.dumps({"v": VERSION + 1, "number": orjson.loads(text)["number"], "tally": {}})
        for place, text in before.items()
    }
    await driver.redis.hset(key, mapping=newer)
    await finish(driver)
    assert (await total(store)).runs == {}
    assert await driver.redis.hgetall(key) == newer
    assert await driver.redis.xlen(statistics_keys.journal("00")) > 0
    past = {
        place: orjson.dumps({**orjson.loads(text), "number": orjson.loads(text)["number"] - 1})
        for place, text in newer.items()
    }
    await driver.redis.hset(key, mapping=past)
    assert (await total(store)).runs == {"submitted": 1, "completed": 1}
    # What the newer one had counted is put back, for what is looked at behind each test.
    for place, text in (await driver.redis.hgetall(key)).items():
        number, tally = SpanTally.of_json(text)
        if place in before:
            tally.merge(SpanTally.of_json(before[place])[1])
        await driver.redis.hset(key, place, tally.to_json(number))
