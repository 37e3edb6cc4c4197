"""Crowds at the gate of a provider, for minutes of a clock that the test turns: what holds however they come."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from fakeredis import FakeAsyncRedis, FakeServer, _helpers
from fakeredis.commands_mixins import server_mixin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaver.providers import Limits
from palaver.settings import Settings
from palaver.store import Store
from palaver.store.providers import Wait

LEASE = 15.0
START = 1_000_000.0


class Clock:
    """Stands in for the module ``time`` that fakeredis reads its clock from."""

    def __init__(self) -> None:
        self.now = START

    def time(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def clock() -> Iterator[Clock]:
    """The time in fakeredis."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(server_mixin, "time", clock)
        patch.setattr(_helpers, "time", clock)
        yield clock


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


@dataclass
class Crowd:
    """Callers at one provider, and what became of them."""

    clock: Clock
    limits: Limits
    callers: list[Caller]
    cool_downs: list[tuple[float, float]]
    """When the provider refuses, and for how long."""
    begun: list[tuple[float, int]] = field(default_factory=list)
    """When each call began, and its tokens."""
    asked: dict[str, int] = field(default_factory=dict)
    most_in_flight: int = 0

    async def run(self) -> None:
        """All of them come, ask, wait, call and leave."""
        store = Store(
            FakeAsyncRedis(server=FakeServer()), Settings(redis_url="redis://127.0.0.1:1/0", lease_seconds=LEASE)
        )
        self.clock.now = START
        closed_until, in_flight, done = 0.0, set[str](), set[str]()
        events: list[tuple[float, int, str, str]] = []
        for i, caller in enumerate(self.callers):
            heapq.heappush(events, (caller.comes, i, "ask", str(i)))
        for i, (at, seconds) in enumerate(self.cool_downs):
            heapq.heappush(events, (at, i, "cool", str(seconds)))
        while events:
            at, order, what, name = heapq.heappop(events)
            self.clock.now = max(self.clock.now, START + at)
            now = self.clock.now - START
            if what == "cool":
                await store.providers.cool("p", float(name))
                closed_until = max(closed_until, now + float(name))
                continue
            caller = self.callers[int(name)]
            if what == "end":
                in_flight.discard(name)
                woken = list(
                    await store.providers.release("p", name, self.limits, tokens=caller.tokens, used=caller.tokens)
                )
            elif name in done:
                continue
            else:
                self.asked[name] = self.asked.get(name, 0) + 1
                assert self.asked[name] < 1000, f"{caller} asks for ever"
                answer = await store.providers.admit("p", name, self.limits, caller.tokens)
                woken = list(answer.woken)
                if isinstance(answer, Wait):
                    assert answer.seconds > 0
                    if caller.absent:
                        done.add(name)
                    else:
                        heapq.heappush(events, (now + answer.seconds + caller.late, order, "ask", name))
                else:
                    assert now >= closed_until - 0.002, "a call began during the cool-down"
                    done.add(name)
                    in_flight.add(name)
                    self.begun.append((now, caller.tokens))
                    self.most_in_flight = max(self.most_in_flight, len(in_flight))
                    heapq.heappush(events, (now + caller.takes, order, "end", name))
            while woken:
                call = woken.pop()
                if call in done:
                    woken += await store.providers.release("p", call, self.limits, tokens=0, used=0)
                else:
                    heapq.heappush(events, (now + 0.01, int(call), "ask", call))
        wanted = {str(i) for i, caller in enumerate(self.callers) if not caller.absent}
        assert wanted <= done, f"never admitted: {wanted - done}"

    def busiest_minute(self) -> tuple[int, int]:
        """The most calls that began within 60 s, and the most tokens."""
        starts = [at for at, _ in self.begun]
        windows = [self.begun[i : bisect_left(starts, at + 60)] for i, at in enumerate(starts)]
        return max(map(len, windows), default=0), max((sum(t for _, t in each) for each in windows), default=0)


_CALLERS = st.lists(
    st.builds(
        Caller,
        comes=st.sampled_from([0.0, 0.0, 0.0, 1.0, 7.5, 30.0, 61.0, 90.0]),
        takes=st.sampled_from([0.1, 1.0, 5.0, 14.0]),
        tokens=st.sampled_from([0, 10, 500, 3000]),
        late=st.sampled_from([0.0, 0.0, 0.0, 0.2, 3.0, 40.0]),
        absent=st.booleans() | st.just(False) | st.just(False),
    ),
    min_size=1,
    max_size=60,
)
_LIMITS = st.builds(
    Limits,
    max_in_flight=st.sampled_from([None, 1, 3, 10]),
    requests_per_minute=st.sampled_from([None, 1, 7, 30, 300]),
    tokens_per_minute=st.sampled_from([None, 1000, 60_000]),
)
_COOL_DOWNS = st.lists(st.tuples(st.floats(0, 120), st.sampled_from([0.5, 1.0, 3.0, 30.0])), max_size=4)


@given(callers=_CALLERS, limits=_LIMITS, cool_downs=_COOL_DOWNS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
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


@given(
    waiting=st.integers(1, 300),
    seconds=st.sampled_from([0.5, 3.0, 60.0]),
    per_minute=st.sampled_from([None, 60, 600]),
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
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


def test_a_crowd_whose_workers_were_away_does_not_begin_all_at_once(clock: Clock) -> None:
    callers = [Caller(0.0, 0.1, 0, 300.0, False) for _ in range(100)]
    crowd = Crowd(clock, Limits(requests_per_minute=60), callers, [])
    asyncio.run(crowd.run())
    assert crowd.busiest_minute()[0] <= 67
