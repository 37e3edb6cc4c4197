"""Crowds at the gate of a provider, for minutes of a clock that the test turns: what holds however they come."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from fakeredis import FakeServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaver.config.providers import Limits
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.redis import provider_keys
from palaver.store.scripting.contracts.providers import Wait
from tests.contract.clock import START, Clock, TurnedRedis
from tests.tiers import examples

LEASE = 15.0


@dataclass(frozen=True)
class Caller:
    """A run that wants to make one call. All times are seconds."""

    comes: float
    takes: float
    tokens: int
    late: float
    """By so much does it come later than it was told, each time."""
    absent: bool
    """It is cancelled when it has to wait, and never comes again."""
    refused: tuple[float, ...] = ()
    """For how long the provider refuses it, and everybody, at the end of its first call, its second, …"""


@dataclass
class Place:
    """A caller that waits."""

    number: int
    """In the order of coming; who was refused has come anew."""
    told: float
    """When it is to ask again."""
    rounds: int
    """Cool-downs that there had been when it came."""
    before: int
    """Calls that waited or were in flight when it came: each may be refused once while it waits."""


@dataclass
class Crowd:
    """Callers at one provider, and what became of them."""

    clock: Clock
    limits: Limits
    callers: list[Caller]
    cool_downs: list[tuple[float, float]] = field(default_factory=list)
    """When the provider refuses something else, and for how long."""
    begun: list[tuple[float, int]] = field(default_factory=list)
    """When each call began, and its tokens."""
    asked: Counter[str] = field(default_factory=Counter)
    most_in_flight: int = 0
    overtaken: float = 0.0
    """The longest that a call began before the time that was told to somebody who had waited since before it came."""
    rounds: int = 0
    """Cool-downs that refused calls began."""
    excess: int = 0
    """How many more of them than ``Place.before`` somebody sat through, at most, who was hardly ever late."""
    _closed_until: float = 0.0
    _begun_since: int = 0
    _came: Iterator[int] = field(default_factory=itertools.count)
    _waiting: dict[str, Place] = field(default_factory=dict)
    _in_flight: set[str] = field(default_factory=set)
    _asks: dict[str, float] = field(default_factory=dict)
    """When each is going to ask."""
    _events: list[tuple[float, int, str, str]] = field(default_factory=list)

    async def run(self) -> None:
        """All of them come, ask, wait, call and leave."""
        redis: Any = TurnedRedis(server=FakeServer())
        store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", lease_seconds=LEASE))
        self.clock.now = START
        refusals = {str(i): list(caller.refused) for i, caller in enumerate(self.callers)}
        for i, caller in enumerate(self.callers):
            self._will_ask(str(i), caller.comes)
        for i, (at, seconds) in enumerate(self.cool_downs):
            heapq.heappush(self._events, (at, i, "cool", str(seconds)))
        while self._events:
            at, order, what, name = heapq.heappop(self._events)
            self.clock.now = max(self.clock.now, START + at)
            now = self.clock.now - START
            if what == "cool":
                await store.providers.cool_down("p", float(name))
                self._close(now + float(name))
                continue
            caller, woken = self.callers[int(name)], list[str]()
            if what == "end":
                self._in_flight.discard(name)
                tokens = caller.tokens
                woken += await store.providers.release("p", name, self.limits, tokens=tokens, used=tokens)
                if refusals[name]:
                    self.rounds += now >= self._closed_until
                    seconds = refusals[name].pop(0)
                    self._wait(name, now, await store.providers.cool_down("p", seconds, name))
                    self._close(now + seconds)
            elif self._asks.get(name) == at:
                del self._asks[name]
                self.asked[name] += 1
                assert self.asked[name] < 1000, f"{caller} asks for ever"
                answer = await store.providers.admit("p", name, self.limits, caller.tokens)
                woken += answer.woken
                if isinstance(answer, Wait):
                    assert answer.seconds > 0
                    self._wait(name, now, answer.seconds)
                else:
                    self._begin(name, now)
                    heapq.heappush(self._events, (now + caller.takes, order, "end", name))
            while woken:
                call = woken.pop()
                if call in self._asks:
                    self._waiting[call].told = now + 0.01
                    self._will_ask(call, now + 0.01)
                else:
                    woken += await store.providers.release("p", call, self.limits, tokens=0, used=0)
        assert not self._waiting, f"never admitted: {self._waiting}"
        gate = provider_keys.of_gate("p")
        left = [json.loads(await redis.hget(gate.places, call)) for call in await redis.zrange(gate.queue, 0, -1)]
        assert sum(map(int, await redis.hvals(gate.sums))) == sum(place["tokens"] for place in left)

    def _will_ask(self, name: str, at: float) -> None:
        self._asks[name] = at
        heapq.heappush(self._events, (at, int(name), "ask", name))

    def _wait(self, name: str, now: float, seconds: float) -> None:
        caller = self.callers[int(name)]
        if caller.absent:
            return
        if name not in self._waiting:
            before = len(self._waiting) + len(self._in_flight)
            self._waiting[name] = Place(next(self._came), 0.0, self.rounds, before)
        self._waiting[name].told = now + seconds
        self._will_ask(name, now + seconds + caller.late)

    def _begin(self, name: str, now: float) -> None:
        caller, place = self.callers[int(name)], self._waiting.pop(name, None)
        into = now - self._closed_until
        assert into >= -0.002, "a call began during the cool-down"
        self._begun_since += 1
        if self._closed_until and into < 9:
            # Who is late may be a second ahead of the ramp.
            assert self._begun_since <= 10 * (2 ** (into + 1) - 1) + 1, f"{self._begun_since} after {into} s"
        self.begun.append((now, caller.tokens))
        self._in_flight.add(name)
        self.most_in_flight = max(self.most_in_flight, len(self._in_flight))
        longer = [each for each in self._waiting.values() if place is None or each.number < place.number]
        self.overtaken = max(self.overtaken, *(each.told - now for each in longer), 0.0)
        if place and caller.late < 0.1:
            self.excess = max(self.excess, self.rounds - place.rounds - place.before)

    def _close(self, until: float) -> None:
        self._closed_until = max(self._closed_until, until)
        self._begun_since = 0

    def busiest_minute(self) -> tuple[int, int]:
        """The most calls that began within 60 s, and the most tokens."""
        starts = [at for at, _ in self.begun]
        windows = [self.begun[i : bisect_left(starts, at + 60)] for i, at in enumerate(starts)]
        return max(map(len, windows), default=0), max((sum(t for _, t in each) for each in windows), default=0)


_COMES = st.sampled_from([0.0, 0.0, 0.0, 1.0, 7.5, 30.0, 61.0, 90.0])
_TAKES = st.sampled_from([0.1, 1.0, 5.0, 14.0])
_TOKENS = st.sampled_from([0, 10, 500, 3000])
_SECONDS = st.sampled_from([0.5, 1.0, 3.0])
_REFUSED = st.just(()) | st.lists(_SECONDS, max_size=3).map(tuple)
_CALLERS = st.lists(
    st.builds(
        Caller,
        comes=_COMES,
        takes=_TAKES,
        tokens=_TOKENS,
        late=st.sampled_from([0.0, 0.0, 0.0, 0.2, 3.0, 40.0]),
        absent=st.booleans() | st.just(False) | st.just(False),
        refused=_REFUSED,
    ),
    min_size=1,
    max_size=60,
)
_ON_TIME = st.lists(
    st.builds(
        Caller, comes=_COMES, takes=_TAKES, tokens=_TOKENS, late=st.just(0.0), absent=st.just(False), refused=_REFUSED
    ),
    min_size=2,
    max_size=30,
)
_LIMITS = st.builds(
    Limits,
    max_in_flight=st.sampled_from([None, 1, 3, 10]),
    requests_per_minute=st.sampled_from([None, 1, 7, 30, 300]),
    tokens_per_minute=st.sampled_from([None, 1000, 60_000]),
)
_COOL_DOWNS = st.lists(st.tuples(st.floats(0, 120), st.sampled_from([0.5, 1.0, 3.0, 30.0])), max_size=4)


@pytest.mark.slow
@given(callers=_CALLERS, limits=_LIMITS, cool_downs=_COOL_DOWNS)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_limits_hold_and_nobody_starves(
    clock: Clock, callers: list[Caller], limits: Limits, cool_downs: list[tuple[float, float]]
) -> None:
    crowd = Crowd(clock, limits, callers, cool_downs)
    asyncio.run(crowd.run())
    requests, tokens = crowd.busiest_minute()
    if limits.max_in_flight:
        assert crowd.most_in_flight <= limits.max_in_flight
    if limits.requests_per_minute:
        assert requests <= limits.requests_per_minute * 1.1 + 1
    if limits.tokens_per_minute:
        assert tokens <= limits.tokens_per_minute * 1.1 + max(caller.tokens for caller in callers)
    # Who is late or gone may let somebody through in its place.
    assert crowd.excess <= sum(caller.absent or caller.late > 0 for caller in callers)


@pytest.mark.slow
@given(callers=_ON_TIME, limits=_LIMITS, cool_downs=_COOL_DOWNS)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_who_waits_longer_begins_first_whatever_is_refused(
    clock: Clock, callers: list[Caller], limits: Limits, cool_downs: list[tuple[float, float]]
) -> None:
    crowd = Crowd(clock, limits, callers, cool_downs)
    asyncio.run(crowd.run())
    # Nobody knows the tokens of a call that was refused until it asks again: a second's worth may be misjudged, and
    # who was let through by that may be refused.
    assert crowd.overtaken <= (1.0 if limits.tokens_per_minute else 0.001)
    assert crowd.excess <= (1 if limits.tokens_per_minute else 0)


@pytest.mark.slow
@pytest.mark.parametrize("late", [0.0, 0.05])
def test_nobody_is_sent_back_for_ever_by_a_provider_that_refuses_nearly_all(clock: Clock, late: float) -> None:
    chance = Random(641820896)
    callers = [
        Caller(i * 0.5, chance.uniform(0.1, 1), 0, chance.uniform(0, late), False, (1.0,) * chance.randrange(6))
        for i in range(50)
    ]
    crowd = Crowd(clock, Limits(), callers)
    asyncio.run(crowd.run())
    assert crowd.excess <= 0
    assert crowd.overtaken <= 0.001


@pytest.mark.slow
@given(
    waiting=st.integers(1, 300),
    seconds=st.sampled_from([0.5, 3.0, 60.0]),
    per_minute=st.sampled_from([None, 60, 600]),
)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
def test_who_comes_on_time_is_admitted_without_waiting_again(
    clock: Clock, waiting: int, seconds: float, per_minute: int | None
) -> None:
    callers = [Caller(0.01 * (i + 1), 1.0, 0, 0.0, False) for i in range(waiting)]
    crowd = Crowd(clock, Limits(requests_per_minute=per_minute), callers, [(0.0, seconds)])
    asyncio.run(crowd.run())
    # Once for the cool-down, once for the rate if there is one, and then it begins.
    assert max(crowd.asked.values()) <= (3 if per_minute else 2)
    begun = [at - seconds for at, _ in crowd.begun]
    for second in range(5):
        within = sum(at <= second for at in begun)
        assert within <= 10 * (2**second - 1) + 1, f"{within} calls {second} s after the cool-down"


@pytest.mark.slow
@pytest.mark.parametrize("per_minute", [None, 600])
def test_who_is_a_little_late_is_not_sent_away_again(clock: Clock, per_minute: int | None) -> None:
    chance = Random(1)
    callers = [Caller(0.01 * (i + 1), 1.0, 0, chance.uniform(0, 0.5), False) for i in range(200)]
    crowd = Crowd(clock, Limits(requests_per_minute=per_minute), callers, [(0.0, 3.0)])
    asyncio.run(crowd.run())
    assert max(crowd.asked.values()) <= 2


@pytest.mark.slow
def test_who_comes_to_an_unused_ramp_begins_one_by_one(clock: Clock) -> None:
    crowd = Crowd(clock, Limits(), [Caller(5.0, 1.0, 0, 0.0, False) for _ in range(100)], [(0.0, 1.0)])
    asyncio.run(crowd.run())
    # 110 a second, 4 s after the cool-down.
    begun = [at - 5 for at, _ in crowd.begun]
    assert max(bisect_left(begun, at + 0.1) - i for i, at in enumerate(begun)) <= 20


def test_who_waits_for_a_place_has_had_its_turn(clock: Clock) -> None:
    late = [3 - math.log2(1 + i / 10) for i in range(8)]
    callers = [Caller(0.01 * (i + 1), 0.02, 0, seconds, False) for i, seconds in enumerate(late)]
    crowd = Crowd(clock, Limits(max_in_flight=2), callers, [(0.0, 1.0)])
    asyncio.run(crowd.run())
    # All come in the same instant, ahead of the ramp. Once for the cool-down, once for the place, and then it begins.
    assert max(crowd.asked.values()) == 3


@pytest.mark.slow
def test_a_crowd_whose_workers_were_away_does_not_begin_all_at_once(clock: Clock) -> None:
    callers = [Caller(0.0, 0.1, 0, 300.0, False) for _ in range(100)]
    crowd = Crowd(clock, Limits(requests_per_minute=60), callers)
    asyncio.run(crowd.run())
    assert crowd.busiest_minute()[0] <= 67


@pytest.mark.slow
def test_those_who_never_come_again_are_not_waited_for(clock: Clock) -> None:
    gone = [Caller(0.01, 1.0, 0, 0.0, True) for _ in range(200)]
    callers = [Caller(20.5, 1.0, 0, 0.0, False) for _ in range(30)]
    crowd = Crowd(clock, Limits(), [*gone, *callers], [(0.0, 1.0), (20.0, 3.0)])
    asyncio.run(crowd.run())
    begun = [at - 23 for at, _ in crowd.begun]
    assert [bisect_left(begun, second) for second in (0.001, 1, 2)] == [1, 10, 30]
