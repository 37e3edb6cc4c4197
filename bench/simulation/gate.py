"""A provider, and the gate in front of it that all workers share: cool-downs, the way back, outages.

As in `_ramp.lua`, `_queue.lua`, `_breaker.lua` and `cool_down.lua`, with their numbers; without the limits that an
operator sets, and with one queue in the order of arrival.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from math import floor, log2
from random import Random

from bench.simulation.clock import Clock
from bench.simulation.product import ASK_AGAIN, FAILURES, FIRST_SECOND, PROBE_INTERVAL, RAMP, SLACK
from bench.simulation.runs import Run
from workers.models.provider_limiter import COOL_DOWN, LONGEST_COOL_DOWN


class Gate:
    """Says when a call may begin. ``shared`` as the product has it, or each step for itself."""

    def __init__(self, clock: Clock, random: Random, wake: Callable[[Run, float], None], *, shared: bool) -> None:
        self._clock, self._random, self._wake, self._shared = clock, random, wake, shared
        self._until = self._opens = 0.0
        self._begun = self._places = 0
        self._queue: list[int] = []
        self._waiting: dict[int, Run] = {}
        self._failed: set[int] = set()
        self.out_since: float | None = None
        """The start of the outage, while there is one."""
        self._prober: Run | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait for their turn."""
        return len(self._queue)

    def ask(self, run: Run) -> float | None:
        """None if its call may begin now, else the time at which it is to ask again."""
        now = self._clock.now
        if not self._shared or (self.out_since is None and now >= self._opens):
            self._begin(run)
            return None
        if self.out_since is not None:
            if self._turn(run) > now:
                return self._told(run)
            self._begin_probe(run)
            return None
        slack = SLACK if run.place and run.turn_of == self._until and run.turn <= now else 0.0
        turn = self._turn(run)
        if turn <= now + slack:
            self._begun = self._used() + 1
            self._begin(run)
            return None
        return self._join(run, turn)

    def refused(self, run: Run, retry_after: float | None) -> float:
        """The provider asked for fewer requests; the time of the turn of this call, which is to be made again."""
        if not self._shared:
            return 0.0
        ends = self._clock.now + min(retry_after or COOL_DOWN, LONGEST_COOL_DOWN)
        if ends > self._until:
            self._until, self._begun = ends, 0
            self._opens = max(ends + RAMP, self._opens if self.out_since is not None else 0.0)
        return self._join(run, self._turn(run))

    def failed(self, run: Run) -> float | None:
        """A call failed as in an outage; if it is one, the time at which it is to ask again."""
        if not self._shared:
            return None
        if run is self._prober:
            self._prober = None
        if self.out_since is None:
            self._failed.add(id(run))
            if len(self._failed) < FAILURES:
                return None
            self.out_since = self._clock.now
            self._until = self._clock.now + PROBE_INTERVAL
        return self._told(run)

    def answered(self, run: Run) -> None:
        """A call was answered: an outage is over, and those who wait come one by one, and then ever faster."""
        if self._failed:
            self._failed.clear()
        if self.out_since is None:
            return
        now = self._clock.now
        self.out_since = self._prober = None
        self._until, self._opens, self._begun = now, now + RAMP, 0
        for ahead, place in enumerate(self._queue):
            self._wake(self._waiting[place], min(self._opens, now + log2(1 + ahead / FIRST_SECOND)))

    def _used(self) -> int:
        return max(self._begun, floor(FIRST_SECOND * (2 ** (self._clock.now - self._until) - 1)))

    def _turn(self, run: Run) -> float:
        ahead = bisect_left(self._queue, run.place) if run.place else len(self._queue)
        if self.out_since is not None:
            busy = self._clock.now + PROBE_INTERVAL if self._prober is not None else 0.0
            return max(self._until, busy) + ahead * PROBE_INTERVAL
        return self._until + log2(1 + (self._used() + ahead) / FIRST_SECOND)

    def _begin(self, run: Run) -> None:
        if run.place:
            del self._queue[bisect_left(self._queue, run.place)]
            del self._waiting[run.place]
            run.place = 0

    def _begin_probe(self, run: Run) -> None:
        now = self._clock.now
        self._prober = run
        self._until = (self._until if now - self._until < PROBE_INTERVAL / 2 else now) + PROBE_INTERVAL
        self._begin(run)

    def _told(self, run: Run) -> float:
        turn = self._join(run, self._turn(run))
        return min(turn, self._clock.now + ASK_AGAIN * (1 + self._random.random()))

    def _join(self, run: Run, turn: float) -> float:
        if not run.place:
            self._places += 1
            run.place = self._places
            insort(self._queue, run.place)
            self._waiting[run.place] = run
        run.turn, run.turn_of = turn, self._until
        return turn


class Provider:
    """Answers calls, or refuses them."""

    def __init__(self, clock: Clock, random: Random, seconds: float, *, spread: float = 0.0) -> None:
        """An answer takes so many ``seconds``, and up to ``spread`` times as much more or less."""
        self._clock, self._random = clock, random
        self._seconds, self._spread = seconds, spread
        self.per_second: float | None = None
        """Calls that it takes a second; it refuses more, with ``retry_after``."""
        self.retry_after: float | None = None
        self.out = self.refuses_first = False
        """Whether it fails all calls, and whether it refuses the first attempt of each step."""
        self._spent = 0.0
        self.calls = self.refusals = self.failures = 0

    def answer(self, attempt: int = 1) -> tuple[str, float]:
        """What becomes of a call, and after how many seconds."""
        self.calls += 1
        if self.refuses_first and attempt == 1:
            self.refusals += 1
            return "refused", self._seconds
        if self.out:
            self.failures += 1
            return "failed", 0.05
        if self.per_second is not None:
            now = self._clock.now
            self._spent = max(self._spent, now - 1.0) + 1 / self.per_second
            if self._spent > now:
                self._spent -= 1 / self.per_second
                self.refusals += 1
                return "refused", 0.05
        return "answered", self._seconds * (1 + self._spread * (2 * self._random.random() - 1))
