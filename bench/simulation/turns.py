"""The queue of steps that are ready: a window of deliveries, and behind it tenants that take turns.

As in `_turns.lua` and `_deliver.lua`: start-time fair queueing, tenants by weight, up to their cap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.simulation.product import ON_ITS_WAY, STANDS_IN_LINE
from bench.simulation.runs import Run
from palaver.vocabulary.step_kinds import WINDOW


@dataclass(slots=True)
class Tenant:
    """A tenant's part of the queue."""

    weight: float = 1.0
    cap: int | None = None
    """Steps of it that may be delivered or under way at once."""
    in_flight: int = 0
    time: float = 0.0
    begun: deque[Run] = field(default_factory=deque)
    new: deque[Run] = field(default_factory=deque)

    @property
    def at_cap(self) -> bool:
        """True if nothing more of it may be delivered."""
        return self.cap is not None and self.in_flight >= self.cap

    @property
    def backlog(self) -> int:
        """Its steps that wait for a turn."""
        return len(self.begun) + len(self.new)


def is_begun(run: Run) -> bool:
    """Tell whether a step goes before those of runs that have not begun."""
    return run.step > 1 and run.step % STANDS_IN_LINE != 0


class Turns:
    """``fair`` as the product has it, or one line for all."""

    def __init__(self, tenants: Mapping[str, Tenant], *, fair: bool = True) -> None:
        self.tenants = dict(tenants)
        self._fair = fair
        self._time = 0.0
        self._first: deque[Run] = deque()
        self._delivered: deque[Run] = deque()
        self.held_back = 0
        """Steps that are ready and not delivered."""

    def __len__(self) -> int:
        return len(self._first) + len(self._delivered) + self.held_back

    @property
    def deliveries(self) -> int:
        """Steps that a worker with room would be given."""
        return len(self._first) + len(self._delivered)

    def put(self, run: Run, *, first: bool = False) -> None:
        """A step is ready. One that has waited already goes ``first``, and waits for no window."""
        tenant = self._of(run)
        if self._fair and (tenant.at_cap or (not first and self.deliveries >= WINDOW)):
            if not tenant.backlog:
                tenant.time = max(tenant.time, self._time)
            (tenant.begun if first or is_begun(run) else tenant.new).append(run)
            self.held_back += 1
        else:
            self._deliver(tenant, run, first or is_begun(run))

    def take(self) -> Run:
        """The next delivery; those behind it follow into the window."""
        run = (self._first or self._delivered).popleft()
        self._fill()
        return run

    def end(self, tenant: str) -> None:
        """A step of a tenant is neither delivered nor under way any more."""
        self.tenants[tenant].in_flight -= 1
        self._fill()

    def begin(self, tenant: str) -> None:
        """A step goes on in place, without a delivery."""
        self.tenants[tenant].in_flight += 1

    def somebody_waits(self, now: float, room: int) -> bool:
        """Tell whether more steps wait for a worker, or for a turn, than there is ``room`` for."""
        if len(self) <= room:
            return False
        lines = [self._first, self._delivered]
        if self.held_back:
            lines += [line for tenant in self.tenants.values() for line in (tenant.begun, tenant.new)]
        return any(line and line[0].ready_at <= now - ON_ITS_WAY for line in lines)

    def _of(self, run: Run) -> Tenant:
        return self.tenants.setdefault(run.tenant, Tenant())

    def _deliver(self, tenant: Tenant, run: Run, first: bool) -> None:
        (self._first if first else self._delivered).append(run)
        tenant.in_flight += 1

    def _fill(self) -> None:
        while self.held_back and self.deliveries < WINDOW:
            waiting = [tenant for tenant in self.tenants.values() if tenant.backlog and not tenant.at_cap]
            if not waiting:
                return
            tenant = min(waiting, key=lambda each: each.time)
            self._time = max(self._time, tenant.time)
            tenant.time += 1 / tenant.weight
            run = (tenant.begun or tenant.new).popleft()
            self.held_back -= 1
            self._deliver(tenant, run, is_begun(run))
