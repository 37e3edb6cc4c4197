"""The gate in front of a provider: cool-downs, calls in flight, rates, and what the workers hear of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from palaver.config.providers import Limits
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.fleet.providers import Cooling
from palaver.store.redis import provider_keys
from palaver.store.scripting.contracts.providers import Admitted, Wait
from tests.contract.clock import Clock
from tests.waiting import aeventually

NONE = Limits()


async def _waits(store: Store, name: str, calls: Iterable[object], limits: Limits = NONE) -> list[float]:
    """What each of ``calls`` is told to wait, in seconds; 0 for who is admitted."""
    told = []
    for call in calls:
        answer = await store.providers.admit(name, str(call), limits, 100)
        told.append(answer.seconds if isinstance(answer, Wait) else 0.0)
    return told


async def test_a_provider_without_limits_lets_everybody_through(store: Store) -> None:
    assert await _waits(store, "a", range(50)) == [0.0] * 50


async def test_nobody_begins_while_a_provider_cools_down(store: Store) -> None:
    began = time.monotonic()
    assert await store.providers.cool_down("a", 5) == 5
    told = await _waits(store, "a", range(200))
    assert min(told) >= 4.9 - (time.monotonic() - began)
    assert await _waits(store, "b", range(3)) == [0.0] * 3
    (state,) = await store.providers.state(["a"])
    assert state.cooling_until is not None
    assert state.waiting == 200


async def _turns(store: Store, redis: Any, calls: Iterable[object], limits: Limits = NONE) -> dict[str, float]:
    """When each of ``calls``, which have to wait at ``a``, is to ask again, in seconds by Redis's clock."""
    listed = [str(call) for call in calls]
    assert min(await _waits(store, "a", listed, limits)) > 0
    return {call: await redis.zscore(provider_keys.of_gate("a")[2], call) / 1000 for call in listed}


async def test_after_a_cool_down_each_has_its_own_turn_in_the_order_of_asking(
    store: Store, redis: Any, clock: Clock
) -> None:
    await store.providers.cool_down("a", 2)
    told = list((await _turns(store, redis, range(151))).values())
    turns = [at - told[0] for at in told]
    gaps = [after - before for before, after in pairwise(turns)]
    assert min(gaps) > 0
    assert max(gaps) < 0.2
    # 10 in the first second, twice as many in each that follows: the 150th about 4 s after the first.
    assert [round(turns[i]) for i in (10, 30, 70, 150)] == [1, 2, 3, 4]


async def test_the_end_of_a_cool_down_is_the_latest_that_was_asked_for(store: Store, redis: Any, clock: Clock) -> None:
    assert await store.providers.cool_down("a", 30) == 30
    assert 20 < await store.providers.cool_down("a", 1) <= 30
    before = await _turns(store, redis, range(3))
    await store.providers.cool_down("a", 60)
    later = await _turns(store, redis, [2, 0, 1])
    assert later["0"] - before["0"] > 29
    # The same turns as before: who comes back too early neither loses its place nor takes another's.
    assert later["0"] < later["1"] < later["2"]
    assert later["2"] - later["0"] == pytest.approx(before["2"] - before["0"], abs=0.001)


async def test_a_call_that_is_made_again_has_its_turn_right_away(store: Store, clock: Clock) -> None:
    turns = [await store.providers.cool_down("a", 3, f"c{i}") for i in range(20)]
    assert min(turns) == turns[0] == 3
    assert len(set(turns)) == 20
    assert await _waits(store, "a", ["c0", "c19"]) == [
        pytest.approx(turns[0], abs=0.001),
        pytest.approx(turns[19], abs=0.001),
    ]
    again = await store.providers.cool_down("a", 3, "c7")
    assert again == pytest.approx(turns[7], abs=0.001)


async def test_a_waiter_keeps_its_place_through_the_next_cool_downs(store: Store, redis: Any, clock: Clock) -> None:
    await store.providers.cool_down("a", 0.5)
    assert min(await _waits(store, "a", ["first", "second", "third"])) > 0
    clock.now += 0.5
    assert await _waits(store, "a", ["first"]) == [0.0]
    # Who was refused goes behind those who wait, and before those who come later.
    await store.providers.cool_down("a", 5, "first")
    await store.providers.cool_down("a", 6)
    turns = await _turns(store, redis, ["new", "first", "third", "second"])
    assert sorted(turns, key=turns.__getitem__) == ["second", "third", "first", "new"]
    await store.providers.cool_down("a", 7, "first")
    turns = await _turns(store, redis, ["new", "first", "third", "second"])
    assert sorted(turns, key=turns.__getitem__) == ["second", "third", "first", "new"]


async def test_a_waiter_that_went_through_is_not_waited_for(store: Store, redis: Any, clock: Clock) -> None:
    await store.providers.cool_down("a", 0.5)
    assert min(await _waits(store, "a", range(20))) > 0
    clock.now += 0.5
    assert await _waits(store, "a", ["0"]) == [0.0]
    await store.providers.cool_down("a", 5)
    turns = list((await _turns(store, redis, range(1, 20))).values())
    assert turns[0] == float(await redis.hget(provider_keys.of_gate("a")[0], "until")) / 1000
    assert turns[10] - turns[0] == pytest.approx(1.0, abs=0.1)


async def test_who_comes_at_its_turn_begins(store: Store, clock: Clock) -> None:
    await store.providers.cool_down("a", 0.15)
    first, second = await _waits(store, "a", ["x", "y"])
    assert first < second
    clock.now += first
    assert await store.providers.admit("a", "x", NONE, 0) == Admitted()
    assert isinstance(await store.providers.admit("a", "y", NONE, 0), Wait)
    clock.now += second - first
    assert await store.providers.admit("a", "y", NONE, 0) == Admitted()


async def test_a_new_refusal_closes_the_gate_again(store: Store, clock: Clock) -> None:
    await store.providers.cool_down("a", 0.05)
    clock.now += 0.05
    assert await _waits(store, "a", ["probe"]) == [0.0]
    await store.providers.cool_down("a", 5)
    assert min(await _waits(store, "a", range(5))) == 5


async def test_no_more_calls_than_allowed_are_in_flight(store: Store) -> None:
    limits = Limits(max_in_flight=3)
    told = await _waits(store, "a", range(8), limits)
    assert told[:3] == [0.0] * 3
    assert all(5 <= seconds < 6 for seconds in told[3:])
    assert len(set(told[3:])) == 5
    (state,) = await store.providers.state(["a"])
    assert (state.in_flight, state.waiting, state.requests_last_minute) == (3, 5, 3)


async def test_the_end_of_a_call_wakes_the_first_in_line(store: Store) -> None:
    limits = Limits(max_in_flight=1)
    await _waits(store, "a", ["now", "first", "second"], limits)
    assert await store.providers.release("a", "now", limits, tokens=100, used=100) == ("first",)
    # The place is kept for it: nobody comes between.
    newcomer, second = await _waits(store, "a", ["newcomer", "second"], limits)
    assert newcomer > 0
    assert second > 0
    assert await _waits(store, "a", ["first"], limits) == [0.0]
    assert await store.providers.release("a", "first", limits, tokens=100, used=0) == ("second",)
    assert await store.providers.release("a", "second", limits, tokens=0, used=0) == ("newcomer",)


async def test_who_finds_a_place_that_came_free_is_not_woken_for_it(store: Store, clock: Clock) -> None:
    limits = Limits(max_in_flight=1)
    await _waits(store, "a", ["now", "first", "second"], limits)
    await store.providers.cool_down("a", 0.5)
    assert await store.providers.release("a", "now", limits, tokens=100, used=100) == ()
    clock.now += 0.5
    assert await store.providers.admit("a", "first", limits, 100) == Admitted()
    assert min(await _waits(store, "a", ["second", "newcomer"], limits)) > 0


async def test_who_is_told_to_wait_for_a_cool_down_waits_for_no_place(store: Store, clock: Clock) -> None:
    limits = Limits(max_in_flight=1)
    await _waits(store, "a", ["now", "first", "second"], limits)
    assert await store.providers.release("a", "now", limits, tokens=100, used=100) == ("first",)
    await store.providers.cool_down("a", 0.2)
    assert min(await _waits(store, "a", ["first", "second"], limits)) > 0
    (state,) = await store.providers.state(["a"])
    assert (state.in_flight, state.waiting) == (0, 2)
    clock.now += 0.2
    (state,) = await store.providers.state(["a"])
    assert state.cooling_until is None
    assert await store.providers.release("a", "now", limits, tokens=100, used=100) == ()


async def test_a_dead_workers_places_come_free(redis: Any, settings: Settings) -> None:
    living = Store(redis, settings.model_copy(update={"lease_seconds": 600.0}))
    dead = Store(redis, settings.model_copy(update={"lease_seconds": 0.2}))
    limits = Limits(max_in_flight=2)
    assert await _waits(living, "a", ["kept"], limits) == [0.0]
    assert await _waits(dead, "a", ["lost"], limits) == [0.0]

    async def a_place_is_free() -> Admitted | None:
        await living.providers.renew_places("a", ["kept"])
        answer = await living.providers.admit("a", "next", limits, 0)
        return answer if isinstance(answer, Admitted) else None

    await aeventually(a_place_is_free)
    (other,) = await _waits(living, "a", ["other"], limits)
    assert other > 0


async def test_a_place_that_ran_out_is_not_held_on_to(store: Store) -> None:
    limits = Limits(max_in_flight=1)
    await store.providers.renew_places("a", ["gone"])
    assert await _waits(store, "a", ["next"], limits) == [0.0]


async def test_requests_are_spread_over_the_minute(store: Store, clock: Clock) -> None:
    limits = Limits(requests_per_minute=24)
    told = await _waits(store, "a", range(12), limits)
    # 5 s worth at once, then one each 2.5 s.
    assert told[:2] == [0.0] * 2
    assert [round(seconds / 2.5) for seconds in told[2:]] == list(range(1, 11))


async def test_a_rate_keeps_the_turn_of_who_waits(store: Store, clock: Clock) -> None:
    limits = Limits(requests_per_minute=60)
    told = await _waits(store, "a", range(7), limits)
    assert told[:5] == [0.0] * 5
    assert 0 < told[5] < told[6]
    clock.now += told[5]
    newcomer, first = await _waits(store, "a", ["newcomer", "5"], limits)
    assert newcomer > 0, "the newcomer has its turn"
    assert first == 0.0


async def test_a_rate_keeps_the_order_through_a_cool_down(store: Store, redis: Any, clock: Clock) -> None:
    limits = Limits(requests_per_minute=60)
    await _waits(store, "a", range(8), limits)
    await store.providers.cool_down("a", 10)
    turns = await _turns(store, redis, ["new", 7, 6, 5], limits)
    assert sorted(turns, key=turns.__getitem__) == ["5", "6", "7", "new"]
    assert turns["7"] - turns["5"] < 0.5, "what the rate had room for meanwhile is not lost"


async def test_a_wait_for_tokens_counts_those_of_all_who_are_ahead(store: Store, clock: Clock) -> None:
    limits = Limits(tokens_per_minute=6000)
    told: list[float] = []
    for tokens in (500, 300, 500, 100):
        answer = await store.providers.admit("a", f"of {tokens} {len(told)}", limits, tokens)
        told.append(answer.seconds if isinstance(answer, Wait) else 0.0)
    # 100 a second, and 5 s worth at once.
    assert told == [0.0, *(pytest.approx(seconds, abs=0.001) for seconds in (3, 8, 9))]


async def test_a_wait_for_tokens_is_exact_in_a_long_queue(store: Store, redis: Any, clock: Clock) -> None:
    limits, sizes = Limits(tokens_per_minute=60_000), [100 * (1 + i % 7) for i in range(100)]
    await store.providers.admit("a", "now", limits, 60_000)
    turns = []
    for i, tokens in enumerate(sizes):
        assert isinstance(await store.providers.admit("a", str(i), limits, tokens), Wait)
        turns.append(await redis.zscore(provider_keys.of_gate("a")[2], str(i)) / 1000)
    # 1000 a second; a call may begin 5 s before the tokens up to its own are paid for.
    paid = [sum(sizes[: i + 1]) / 1000 for i in range(100)]
    assert [turn - turns[0] for turn in turns] == pytest.approx([each - paid[0] for each in paid], abs=0.01)


async def test_calls_after_the_first_are_counted_when_they_are_known(store: Store, clock: Clock) -> None:
    limits = Limits(requests_per_minute=60)
    assert await _waits(store, "a", ["1"], limits) == [0.0]
    await store.providers.release("a", "1", limits, tokens=100, used=100, calls=8)
    (state,) = await store.providers.state(["a"])
    assert state.requests_last_minute == 8
    (told,) = await _waits(store, "a", ["2"], limits)
    assert told == pytest.approx(4, abs=0.001)


async def test_tokens_are_estimated_and_then_corrected(store: Store, clock: Clock) -> None:
    limits = Limits(tokens_per_minute=6000)
    await store.providers.admit("a", "1", limits, 500)
    (told,) = await _waits(store, "a", ["2"], limits)
    assert told == pytest.approx(1.0, abs=0.001)
    await store.providers.release("a", "1", limits, tokens=500, used=3500)
    (told,) = await _waits(store, "a", ["3"], limits)
    assert told == pytest.approx(32, abs=0.001)
    (state,) = await store.providers.state(["a"])
    assert (state.requests_last_minute, state.tokens_last_minute, state.waiting) == (1, 3500, 2)


async def test_a_call_larger_than_the_limit_begins_all_the_same(store: Store, clock: Clock) -> None:
    limits = Limits(tokens_per_minute=100)
    assert isinstance(await store.providers.admit("a", "1", limits, 1000), Admitted)
    answer = await store.providers.admit("a", "2", limits, 1)
    assert isinstance(answer, Wait)
    assert answer.code == "tokens_per_minute"
    # Ten minutes of tokens for the first and 0.6 s for its own, less the 5 s worth that may begin before.
    assert answer.seconds == pytest.approx(595.6, abs=0.001)


async def test_all_keys_of_a_provider_go_in_time(store: Store, redis: Any) -> None:
    limits = Limits(max_in_flight=1, requests_per_minute=60)
    await _waits(store, "a", range(10), limits)
    await store.providers.cool_down("a", 3000)
    ttls = [await redis.ttl(name) for name in provider_keys.of_gate("a") if await redis.exists(name)]
    assert len(ttls) == 9
    assert min(ttls) > 3000
    assert max(ttls) < 3700


async def test_every_worker_hears_of_a_cool_down(store: Store) -> None:
    await store.providers.cool_down("before", 5)
    news = store.providers.news(["before", "a"])
    cooling = await anext(news)
    assert isinstance(cooling, Cooling)
    assert (cooling.limit_key, round(cooling.seconds)) == ("before", 15)
    assert await anext(news) is None
    begun = time.monotonic()
    for _ in range(50):
        await store.providers.cool_down("a", 3)
    took = time.monotonic() - begun
    heard = [await anext(news)]
    await store.providers.cool_down("a", 30)
    heard.append(await anext(news))
    while isinstance(heard[-1], Cooling) and heard[-1].seconds < 30:
        heard.append(await anext(news))
    assert all(isinstance(each, Cooling) and each.limit_key == "a" for each in heard)
    # The first, one for each tenth of a second by which the others made it longer, and the last.
    assert len(heard) <= 2 + took / 0.1
    await news.aclose()
