"""Runs, and the workers that have their steps."""

from __future__ import annotations

from bench.simulation.clock import Station


class Run:
    """A run, at its next step."""

    __slots__ = (
        "asleep", "attempt", "began_at", "died_at", "in_place", "in_place_since", "lost", "out_since", "place",
        "ready_at", "step", "tenant", "token", "turn", "turn_of", "worker",
    )  # fmt: skip

    def __init__(self, tenant: str) -> None:
        self.tenant, self.step, self.token, self.lost, self.in_place = tenant, 1, 0, 0, 0
        self.attempt, self.place, self.asleep = 1, 0, False
        self.ready_at = self.turn = self.turn_of = self.in_place_since = 0.0
        self.began_at: float | None = None
        self.out_since: float | None = None
        self.died_at: float | None = None
        self.worker: Worker | None = None


class Worker:
    """A model worker: one event loop, and the steps that it has."""

    def __init__(self, station: Station, slots: int) -> None:
        self.station, self.slots = station, slots
        self.alive = True
        self.held: dict[Run, None] = {}

    @property
    def room(self) -> int:
        """Steps that it could take."""
        return self.slots - len(self.held) if self.alive else 0
