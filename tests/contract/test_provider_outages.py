"""The circuit breaker of a provider, or of a model there: what opens it, who probes, what closes it."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from palaver.config.providers import Limits
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure, ProviderDetails
from palaver.store import Store
from palaver.store.fleet.provider_states import Outage
from palaver.store.fleet.providers import Cooling
from palaver.store.redis import provider_keys
from palaver.store.scripting.contracts.providers import Admitted, Wait

NONE = Limits()
REFUSED = Failure.of(ErrorClass.CONNECTION, code="connect_refused", provider=ProviderDetails("a", "echo"))
INTERVAL = 5.0
"""Seconds between two probes: a stalled machine meets no turn. `probe` brings them."""
LEASE = 15.0


@pytest.fixture(scope="session")
def settings() -> Settings:
    """The usual ones, and probes that hold their turn for long."""
    return Settings(redis_url="redis://127.0.0.1:1/0", shards=1, lease_seconds=LEASE, probe_interval=INTERVAL)


async def fail(
    store: Store, call: str, *, gate: str = "a", counts_as: str | None = None, answered: float | None = None
) -> Wait | None:
    """``call`` fails as in an outage."""
    return await store.providers.report_failure(gate, call, REFUSED, counts_as=counts_as or call, answered=answered)


async def break_down(store: Store, gate: str = "a") -> list[Wait]:
    """Open it: what each of the calls is told that failed while it was open."""
    told = [await fail(store, f"f{i}", gate=gate) for i in range(8)]
    assert told[:4] == [None] * 4
    return [each for each in told if each is not None]


async def admit(store: Store, call: str, gate: str = "a", limits: Limits = NONE) -> Admitted | Wait:
    return await store.providers.admit(gate, call, limits, 0)


async def probe(store: Store, redis: Any, call: str, gate: str = "a") -> Admitted:
    """The turn of ``call`` comes, and it is the probe."""
    await the_turn_comes(redis, gate)
    answer = await admit(store, call, gate)
    assert isinstance(answer, Admitted)
    assert answer.probes
    return answer


async def the_turn_comes(redis: Any, gate: str = "a") -> None:
    """Time passes until the first of those who wait may probe."""
    await redis.hset(provider_keys.of_gate(gate).gate, "until", 1)


async def outages(store: Store) -> tuple[Outage, ...]:
    (state,) = await store.providers.state(["a"])
    return state.outages


async def test_a_few_failures_in_a_row_open_it_and_who_comes_waits(store: Store) -> None:
    probes: list[tuple[float, float]] = []
    for number in range(8):
        earliest = time.monotonic()
        told = await fail(store, f"f{number}")
        if number < 4:
            assert told is None
        else:
            assert told is not None
            assert told.code == "outage"
            probes.append((earliest + told.seconds, time.monotonic() + told.seconds))
    # Each would have its probe an interval after the one before, somewhere between these.
    for (first_from, first_until), (next_from, next_until) in pairwise(probes):
        assert next_until - first_from > INTERVAL * 0.9
        assert next_from - first_until < INTERVAL * 1.9
    answer = await admit(store, "new")
    assert isinstance(answer, Wait)
    assert answer.code == "outage"
    assert answer.failure == REFUSED
    (outage,) = await outages(store)
    assert (outage.model, outage.failure, outage.waiting) == (None, REFUSED, 5)
    assert outage.next_probe > outage.since


async def test_an_answer_between_them_begins_the_row_anew(store: Store) -> None:
    for i in range(4):
        assert await fail(store, f"f{i}") is None
    assert await fail(store, "f4", answered=0.0) is None
    await store.providers.report_answer("a", "other")
    for i in range(4):
        assert await fail(store, f"g{i}") is None
    assert await fail(store, "g4") is not None


async def test_one_request_that_fails_again_and_again_is_no_outage(store: Store) -> None:
    for _ in range(20):
        assert await fail(store, "poison", counts_as="poison") is None
    assert await admit(store, "other") == Admitted()


async def test_one_call_probes_and_its_failure_leaves_it_open(store: Store, redis: Any) -> None:
    await break_down(store)
    await probe(store, redis, "f4")
    assert isinstance(await admit(store, "f5"), Wait)
    again = await fail(store, "f4")
    # It has begun: it waits behind all others now.
    assert again is not None
    others = [await admit(store, f"f{i}") for i in (5, 6, 7)]
    assert all(isinstance(each, Wait) and each.seconds < again.seconds for each in others)
    await probe(store, redis, "f5")
    (outage,) = await outages(store)
    assert outage.waiting == 3


async def test_who_looks_whether_its_turn_has_come_does_not_take_it(store: Store, redis: Any) -> None:
    await break_down(store)

    async def look(call: str) -> Admitted | Wait:
        return await store.providers.admit("a", call, NONE, 0, looks=True)

    waits = await look("new")
    assert isinstance(waits, Wait)
    assert waits.code == "outage"

    await the_turn_comes(redis)
    assert await look("f4") == Admitted()
    assert await look("f4") == Admitted()
    await probe(store, redis, "f4")
    assert isinstance(await look("f5"), Wait)


async def test_the_answer_to_a_probe_closes_it_and_wakes_nobody_but_the_first_of_those_who_wait(
    store: Store, redis: Any
) -> None:
    await break_down(store)
    await probe(store, redis, "f4")
    waiting = [f"w{i}" for i in range(40)]
    for call in waiting:
        assert isinstance(await admit(store, call), Wait)
    woken = await store.providers.report_answer("a", "f4")
    assert await outages(store) == ()
    order = ["f5", "f6", "f7", *waiting]
    # 10 may begin in the first second. Those who would have probed by then come by themselves.
    assert set(woken) <= set(order[:11])


async def test_an_answer_from_before_the_failures_does_not_close_it(store: Store) -> None:
    await break_down(store)
    await store.providers.report_answer("a", "old", answered=5.0)
    assert len(await outages(store)) == 1
    # One that came in between does: they were not in a row, and only its worker knew it.
    await store.providers.report_answer("a", "other")
    assert await outages(store) == ()


async def test_an_outage_that_was_none_leaves_the_gate_as_it_was(store: Store) -> None:
    told = await break_down(store)
    waiting = [f"f{i}" for i in range(4, 8)] + [f"w{i}" for i in range(40)]
    for call in waiting[len(told) :]:
        assert isinstance(await admit(store, call), Wait)
    woken = await store.providers.report_answer("a", "other")
    # Who sleeps for less than a second longer comes by itself.
    assert set(woken) >= set(waiting[10:])
    assert [await admit(store, f"n{i}") for i in range(50)] == [Admitted()] * 50


async def test_an_outage_that_was_none_does_not_shorten_a_cool_down(store: Store) -> None:
    before = await store.providers.cool_down("a", 30)
    await break_down(store)
    await store.providers.report_answer("a", "other")
    answer = await admit(store, "new")
    assert isinstance(answer, Wait)
    assert answer.code == "cooldown"
    # And the ramp: eight are ahead.
    assert before - 10 < answer.seconds <= before + 5
    # Nor one that began in it; the next outage needs twice as many failures.
    for i in range(10):
        await fail(store, f"g{i}")
    assert len(await outages(store)) == 1
    await store.providers.cool_down("a", 60)
    await store.providers.report_answer("a", "other")
    answer = await admit(store, "new")
    assert isinstance(answer, Wait)
    assert answer.code == "cooldown"
    assert 50 < answer.seconds <= 65


async def test_a_probe_that_fails_confirms_it_and_any_answer_after_that_begins_the_ramp(
    store: Store, redis: Any
) -> None:
    await break_down(store)
    await probe(store, redis, "f4")
    await fail(store, "f4")
    await store.providers.report_answer("a", "other")
    assert await outages(store) == ()
    answers = [await admit(store, f"n{i}") for i in range(50)]
    assert sum(isinstance(each, Admitted) for each in answers) < 20


async def test_a_probe_whose_worker_died_is_replaced_after_a_lease(store: Store, redis: Any) -> None:
    await break_down(store)
    await probe(store, redis, "f4")
    answer = await admit(store, "f5")
    assert isinstance(answer, Wait)
    assert INTERVAL < answer.seconds <= LEASE
    await redis.hset(provider_keys.of_gate("a").gate, "probing", 1)
    await probe(store, redis, "f5")
    # What the first one brings after all is an answer, and a failure of it ends no probe of another's.
    await fail(store, "f4")
    assert isinstance(await admit(store, "f6"), Wait)


async def test_a_probe_that_goes_on_is_held_and_one_that_was_broken_off_given_back(store: Store, redis: Any) -> None:
    gate = provider_keys.of_gate("a").gate
    await break_down(store)
    await probe(store, redis, "f4")
    half_over = float(await redis.hget(gate, "probing")) - LEASE * 500
    await redis.hset(gate, "probing", half_over)
    await store.providers.renew_places("a", ["f4"])
    assert float(await redis.hget(gate, "probing")) >= half_over + LEASE * 500
    assert isinstance(await admit(store, "f5"), Wait)
    await the_turn_comes(redis)
    woken = await store.providers.release("a", "f4", NONE, tokens=0, used=0)
    assert "f5" in woken
    await probe(store, redis, "f5")


async def test_who_was_woken_and_is_gone_gives_its_turn_to_the_next(store: Store, redis: Any) -> None:
    await break_down(store)
    await probe(store, redis, "f4")
    for call in (*(f"gone{i}" for i in range(30)), "last"):
        assert isinstance(await admit(store, call), Wait)
    woken = list(await store.providers.report_answer("a", "f4"))
    seen = set(woken)
    while woken and "last" not in seen:
        more = await store.providers.release("a", woken.pop(0), NONE, tokens=0, used=0)
        seen |= set(more)
        woken += more
    assert "last" in seen


async def test_a_model_that_is_out_leaves_the_others_of_its_provider_alone(store: Store, redis: Any) -> None:
    await break_down(store, "a/big/one")
    assert isinstance(await admit(store, "x", "a/big/one"), Wait)
    assert await admit(store, "x", "a") == Admitted()
    assert await admit(store, "x", "a/small") == Admitted()
    (outage,) = await outages(store)
    assert outage.model == "big/one"
    news = store.providers.news(["a"])
    heard = await anext(news)
    assert isinstance(heard, Cooling)
    assert heard.limit_key == "a/big/one"
    assert heard.failing_for is not None
    assert await anext(news) is None
    await probe(store, redis, "x", "a/big/one")
    await store.providers.report_answer("a/big/one", "x")
    while isinstance(heard, Cooling) and heard.failing_for is not None:
        heard = await anext(news)
    assert isinstance(heard, Cooling)
    assert (heard.limit_key, round(heard.seconds)) == ("a/big/one", 10)
    await news.aclose()


async def test_every_key_of_an_outage_goes_away_by_itself(store: Store, redis: Any) -> None:
    await fail(store, "f0", gate="a/m")
    await break_down(store)
    await probe(store, redis, "f4")
    for name in [key async for key in redis.scan_iter("{palaver:provider:*")]:
        assert 0 < await redis.ttl(name) <= 1300, name


async def test_a_limit_holds_for_a_probe_as_well(store: Store, redis: Any) -> None:
    await break_down(store)
    await the_turn_comes(redis)
    narrow = replace(NONE, max_in_flight=1)
    first = await admit(store, "f4", "a", narrow)
    assert isinstance(first, Admitted)
    assert first.probes
    assert await redis_calls(store) == 1
    await store.providers.report_answer("a", "f4")
    second = await admit(store, "f5", "a", narrow)
    assert isinstance(second, Wait)
    assert second.code == "max_in_flight"


async def redis_calls(store: Store) -> int:
    (state,) = await store.providers.state(["a"])
    return state.in_flight


def test_the_gates_of_a_provider_and_of_its_models_are_in_one_slot() -> None:
    of_model, of_provider = provider_keys.of_gate("a/b/c"), provider_keys.of_gate("a")
    assert {key[: key.index("}") + 1] for key in (*of_model, *of_provider)} == {"{palaver:provider:a}"}
    assert (of_model.models, of_model.cooldowns) == (of_provider.models, of_provider.cooldowns)
    assert len({*of_model, *of_provider}) == 2 * len(of_model) - 2
