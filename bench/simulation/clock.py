"""Time that goes from event to event, and stations at which work waits for its turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

SHARED: Final = 1.1
"""The one number that is fitted to measurements, six of them (`points.POINTS`)."""


class Clock:
    """Events in the order of their times; those of one time in the order in which they were made."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0

    def at(self, time: float, act: Callable[..., None], *about: Any) -> None:
        """Have something done at that time, or now if it is past."""
        self._made += 1
        heappush(self._events, (time if time > self.now else self.now, self._made, act, about))

    def after(self, seconds: float, act: Callable[..., None], *about: Any) -> None:
        """Have something done in so many seconds."""
        self.at(self.now + seconds, act, *about)

    def run(self, until: float) -> None:
        """Go on until that time, or until nothing is to be done any more."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, act, about = heappop(events)
            act(*about)

    @property
    def events(self) -> int:
        """How many there were so far, those to come included."""
        return self._made


class Station:
    """A server that does one thing at a time, first come, first served: Redis, or the event loop of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at = 0.0
        self.busy = 0.0
        """Seconds of work that it was given."""

    def do(self, seconds: float, then: Callable[..., None], *about: Any) -> None:
        """Work for so many ``seconds`` once all is done that was there before, and ``then`` go on."""
        self._free_at = max(self._clock.now, self._free_at) + seconds
        self.busy += seconds
        self._clock.at(self._free_at, then, *about)

    @property
    def waiting(self) -> float:
        """Seconds until it would begin with what comes now."""
        return max(0.0, self._free_at - self._clock.now)


class Machine:
    """Cores that the processes of one machine share, in the order in which they ask for one."""

    def __init__(self, clock: Clock, cores: int) -> None:
        self.clock, self._free = clock, cores
        self._waiting: deque[SharingStation] = deque()

    def take(self, station: SharingStation) -> None:
        """Have a station begin as soon as there is a core for it."""
        if self._free:
            self._free -= 1
            station.begin()
        else:
            self._waiting.append(station)

    def give_back(self) -> None:
        """A core is free."""
        if self._waiting:
            self._waiting.popleft().begin()
        else:
            self._free += 1


class SharingStation(Station):
    """A station that needs one of the cores of a machine for whatever it does.

    There everything takes ``SHARED`` times as long: the kernel's work that no process is charged for, and caches.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.clock)
        self._machine = machine
        self._work: deque[tuple[float, Callable[..., None], tuple[Any, ...]]] = deque()

    def do(self, seconds: float, then: Callable[..., None], *about: Any) -> None:
        """As a station that has a core to itself."""
        self._work.append((seconds, then, about))
        self.busy += seconds
        if len(self._work) == 1:
            self._machine.take(self)

    def begin(self) -> None:
        """There is a core."""
        self._clock.after(self._work[0][0] * SHARED, self._done)

    def _done(self) -> None:
        _, then, about = self._work.popleft()
        self._machine.give_back()
        if self._work:
            self._machine.take(self)
        then(*about)
