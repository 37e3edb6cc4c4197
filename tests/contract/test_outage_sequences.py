"""Any sequence of failures, answers, probes and deaths at a provider's gate: it does what a model in Python says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from fakeredis import FakeServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaver.config.providers import Limits
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure, ProviderDetails
from palaver.store import Store
from palaver.store.scripting.contracts.providers import Admitted
from tests.contract.clock import START, Clock, TurnedRedis
from tests.tiers import examples

INTERVAL = 5.0
LEASE = 15.0
FAILURES = 5
MEMORY = 300.0
FORGOTTEN = 600.0
REFUSED = Failure.of(ErrorClass.CONNECTION, code="connect_refused", provider=ProviderDetails("p", "m"))


@dataclass
class Breaker:
    """What a circuit breaker is, without Redis, queue or ramp."""

    streak: dict[str, float] = field(default_factory=dict)
    """When each of the failures in a row came."""
    out: bool = False
    quiet_since: float = 0.0
    """The newest failure: after a long time without any nobody cares."""
    prober: str | None = None
    prober_until: float = 0.0
    next_probe: float = 0.0
    probes: list[float] = field(default_factory=list)
    confirmed: bool = False
    """A probe has failed."""
    doubts: int = 0
    """Outages that were none."""
    doubted: float = -1e9

    def needed(self, now: float) -> int:
        """So many failures in a row are an outage."""
        return FAILURES << (self.doubts if now < self.doubted + MEMORY else 0)

    def look(self, now: float) -> None:
        """Time passes."""
        if self.out and now >= self.quiet_since + FORGOTTEN:
            self.out, self.prober, self.streak = False, None, {}

    def fail(self, now: float, call: str, counts_as: str, answered: float | None) -> bool:
        """Whether it is out, as ``call`` is told."""
        since = -1e9 if answered is None else now - answered
        if not self.out:
            since = max(since, now - MEMORY)
        self.streak = {each: at for each, at in self.streak.items() if at > since}
        self.streak[counts_as] = now
        self.streak = dict(sorted(self.streak.items(), key=lambda each: each[1])[-self.needed(now) :])
        if self.out and self.prober == call:
            self.prober, self.confirmed, self.doubts = None, True, 0
        if not self.out and len(self.streak) >= self.needed(now):
            self.out, self.prober, self.next_probe, self.confirmed = True, None, now + INTERVAL, False
        if self.out:
            self.quiet_since = now
        return self.out

    def answer(self, now: float, call: str, ago: float) -> None:
        """``call`` was answered, so long ago."""
        self.streak = {each: at for each, at in self.streak.items() if at > now - ago}
        was_away = self.confirmed or self.prober == call
        if self.prober == call:
            self.prober = None
        if self.out and len(self.streak) < self.needed(now):
            if not was_away:
                self.doubts = min(self.doubts + 1, 4) if now < self.doubted + MEMORY else 1
                self.doubted = now
            self.out, self.prober, self.streak = False, None, {}

    def may_probe(self, now: float) -> bool:
        """Whether a probe may begin now."""
        busy = self.prober is not None and now < self.prober_until
        return self.out and not busy and now >= self.next_probe

    def probe(self, now: float, call: str) -> None:
        """``call`` begins as the probe."""
        late = now - self.next_probe
        self.prober, self.prober_until = call, now + LEASE
        self.next_probe = (self.next_probe if late < INTERVAL / 2 else now) + INTERVAL
        self.probes.append(now)


_CALLS = st.sampled_from([f"c{i}" for i in range(12)])
_AGO = st.sampled_from([0.0, 0.0, 0.5, 4.0, 20.0])
_ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), _CALLS, st.booleans(), st.none() | _AGO),
        st.tuples(st.just("fail"), _CALLS, st.just(False), st.none()),
        st.tuples(st.just("fail"), _CALLS, st.just(False), st.none()),
        st.tuples(st.just("answer"), _CALLS, _AGO),
        st.tuples(st.just("ask"), _CALLS),
        st.tuples(st.just("ask"), _CALLS),
        st.tuples(st.just("ask"), _CALLS),
        st.tuples(st.just("give back"), _CALLS),
        st.tuples(st.just("hold"), _CALLS),
        st.tuples(st.just("pass"), st.sampled_from([0.1, 1.0, 2.6, 5.0, 5.0, 16.0, 310.0, 601.0])),
        st.tuples(st.just("pass"), st.sampled_from([0.1, 1.0, 2.6, 5.0, 5.0])),
    ),
    min_size=20,
    max_size=120,
)


@pytest.mark.slow
@given(acts=_ACTS)
@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
def test_it_does_what_the_model_says(clock: Clock, acts: list[tuple[Any, ...]]) -> None:
    asyncio.run(_follow(clock, acts))


async def _follow(clock: Clock, acts: list[tuple[Any, ...]]) -> None:
    clock.now = START
    redis: Any = TurnedRedis(server=FakeServer())
    own = Settings(redis_url="redis://127.0.0.1:1/0", lease_seconds=LEASE, probe_interval=INTERVAL)
    gate = Store(redis, own).providers
    model, tries = Breaker(), 0
    for act, *about in acts:
        # No two acts at the same moment: what came first is a matter of taste then.
        clock.now += 0.01
        now = clock.now
        model.look(now)
        match act:
            case "pass":
                clock.now += about[0]
            case "fail":
                call, of_request, answered = about
                tries += 1
                counts_as = call if of_request else f"{call} {tries}"
                told = await gate.report_failure("p", call, REFUSED, counts_as=counts_as, answered=answered)
                assert (told is not None) == model.fail(now, call, counts_as, answered)
            case "answer":
                await gate.report_answer("p", about[0], answered=about[1])
                model.answer(now, *about)
            case "give back":
                await gate.release("p", about[0], Limits(), tokens=0, used=0)
                if model.prober == about[0]:
                    model.prober = None
            case "hold":
                await gate.renew_places("p", [about[0]])
                if model.out and model.prober == about[0]:
                    model.prober_until = now + LEASE
            case "ask":
                answer = await gate.admit("p", about[0], Limits(), 0)
                if isinstance(answer, Admitted) and model.out:
                    assert answer.probes
                    assert model.may_probe(now), "a call that is no probe"
                    model.probe(now, about[0])
                elif isinstance(answer, Admitted):
                    assert not answer.probes
                elif not model.out:
                    assert answer.code == "cooldown"
                else:
                    assert answer.code == "outage"
                    assert 0 < answer.seconds <= 60
        model.look(clock.now)
        (state,) = await gate.state(["p"])
        assert bool(state.outages) == model.out, act
    assert all(later - at >= INTERVAL / 2 for at, later in pairwise(model.probes))


@pytest.mark.slow
@given(waiting=st.integers(1, 60), out_for=st.sampled_from([7.0, 60.0, 400.0]), gone=st.integers(0, 5))
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
def test_those_who_wait_probe_in_turn_and_come_back_in_order(
    clock: Clock, waiting: int, out_for: float, gone: int
) -> None:
    asyncio.run(_wait_out(clock, waiting, out_for, gone))


async def _wait_out(clock: Clock, waiting: int, out_for: float, gone: int) -> None:
    """All calls sleep as they are told, but for every sixth, which is cancelled, if any are `gone`."""
    clock.now = START
    redis: Any = TurnedRedis(server=FakeServer())
    own = Settings(redis_url="redis://127.0.0.1:1/0", lease_seconds=LEASE, probe_interval=INTERVAL)
    gate = Store(redis, own).providers
    asks: dict[str, float] = {}
    for i in range(waiting + FAILURES - 1):
        told = await gate.report_failure("p", f"c{i}", REFUSED, counts_as=str(i), answered=None)
        if told is not None:
            asks[f"c{i}"] = clock.now + told.seconds
    for call in [call for i, call in enumerate(asks) if i % 6 < gone and len(asks) > gone][:gone]:
        del asks[call]
    back, asked = START + out_for, 0
    probes: list[float] = []
    begun: list[float] = []
    while asks:
        call = min(asks, key=lambda each: asks[each])
        clock.now = max(clock.now, asks.pop(call))
        asked += 1
        answer = await gate.admit("p", call, Limits(), 0)
        woken = list(answer.woken)
        if not isinstance(answer, Admitted):
            asks[call] = clock.now + answer.seconds
        elif clock.now >= back:
            begun.append(clock.now)
            if answer.probes:
                woken += await gate.report_answer("p", call)
        else:
            probes.append(clock.now)
            told = await gate.report_failure("p", call, REFUSED, counts_as=f"{call} {asked}", answered=None)
            assert told is not None
            woken += told.woken
            asks[call] = clock.now + told.seconds
        while woken:
            name = woken.pop()
            if name in asks:
                asks[name] = min(asks[name], clock.now + 0.01)
            else:
                woken += await gate.release("p", name, Limits(), tokens=0, used=0)
    assert all(later - at >= INTERVAL / 2 for at, later in pairwise(probes))
    assert len(probes) <= out_for / INTERVAL + 1
    # The line is awake within ten seconds, but for a pause where those who were next had been cancelled.
    assert begun[0] - back <= (INTERVAL if gone == 0 else 60)
    assert begun[-1] - begun[0] <= 10
    # Nobody polls: one question a probe, some in case others are gone, and two or three each on the way back.
    assert asked <= len(probes) + waiting * (out_for / 30 + 4)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [30, pytest.param(120, marks=pytest.mark.chaos)])
def test_a_worker_that_alone_reaches_nobody_slows_no_other(clock: Clock, seconds: int) -> None:
    asyncio.run(_fail_alone(clock, seconds))


async def _fail_alone(clock: Clock, seconds: int) -> None:
    """For so long, 100 calls a second: one in ten fails, all those of one worker. Another one's answers end each outage
    20 ms after it began."""
    clock.now = START
    redis: Any = TurnedRedis(server=FakeServer())
    gate = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", probe_interval=INTERVAL)).providers
    asked, admitted, opened, contradict = 0, 0, 0, 0.0
    asleep: set[str] = set()
    for i in range(100 * seconds):
        clock.now = START + i / 100
        if contradict and clock.now >= contradict:
            contradict = 0.0
            asleep -= set(await gate.report_answer("p", "", answered=0.005))
            assert not asleep
        if i % 10 == 0:
            told = await gate.report_failure("p", f"c{i}", REFUSED, counts_as=f"c{i}", answered=None)
            if told is not None and not contradict:
                opened, contradict = opened + 1, clock.now + 0.02
            continue
        asked += 1
        if isinstance(await gate.admit("p", f"c{i}", Limits(), 0), Admitted):
            admitted += 1
        else:
            asleep.add(f"c{i}")
    assert opened > 0
    assert admitted >= 0.99 * asked, f"{admitted} of {asked}, {opened} openings"


async def test_an_outage_that_everybody_forgot_does_not_come_back_with_a_cool_down(clock: Clock) -> None:
    clock.now = START
    redis: Any = TurnedRedis(server=FakeServer())
    gate = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", probe_interval=INTERVAL)).providers
    for i in range(FAILURES):
        await gate.report_failure("p", f"c{i}", REFUSED, counts_as=str(i), answered=None)
    clock.now += FORGOTTEN + 1
    assert await gate.admit("p", "new", Limits(), 0) == Admitted()
    await gate.cool_down("p", 30)
    await gate.report_answer("p", "old")
    answer = await gate.admit("p", "newer", Limits(), 0)
    assert not isinstance(answer, Admitted)
    assert answer.code == "cooldown"
    assert answer.seconds == 30
