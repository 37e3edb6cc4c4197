"""Tool steps, and the children of tools workers that run them: each has one call at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bench.simulation.clock import Clock, Station
from bench.simulation.plan import Plan
from bench.simulation.runs import Run


class ToolSteps:
    """Calls wait for a child in the order in which they came."""

    def __init__(self, plan: Plan, clock: Clock, redis: Station, children: list[Station]) -> None:
        self._plan, self._clock, self._redis, self._free = plan, clock, redis, children
        self._ready: deque[tuple[Run, Callable[[Run], None]]] = deque()

    def call(self, run: Run, then: Callable[[Run], None]) -> None:
        """A call of a tool is ready; ``then`` the run goes on."""
        self._ready.append((run, then))
        self._dispatch()

    def _dispatch(self) -> None:
        while self._ready and self._free:
            run, then = self._ready.popleft()
            self._redis.do(self._plan.costs.redis_claim, self._claimed, self._free.pop(), run, then)

    def _claimed(self, child: Station, run: Run, then: Callable[[Run], None]) -> None:
        child.do(self._plan.costs.tools / 2, self._begun, child, run, then)

    def _begun(self, child: Station, run: Run, then: Callable[[Run], None]) -> None:
        self._clock.after(self._plan.tool_seconds, self._answered, child, run, then)

    def _answered(self, child: Station, run: Run, then: Callable[[Run], None]) -> None:
        child.do(self._plan.costs.tools / 2, self._done, child, run, then)

    def _done(self, child: Station, run: Run, then: Callable[[Run], None]) -> None:
        self._free.append(child)
        self._redis.do(self._plan.costs.redis_settle, then, run)
        self._dispatch()
