"""The plan of a simulated fleet, and what came of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from bench.simulation.costs import MEASURED, Costs


@dataclass(frozen=True, slots=True)
class Plan:
    """A cell: a Redis, its workers and its API. A larger fleet has several, between which nothing passes."""

    workers: int = 1
    slots: int = 500
    """Model steps that a worker has room for."""
    apis: int = 1
    costs: Costs = MEASURED
    cores: int | None = None
    """Of the machine that all share; None: each process has one."""
    steps: int = 21
    """Model steps of a run."""
    model_seconds: float = 3.0
    model_spread: float = 0.5
    tool_steps: bool = False
    """Tools are steps of their own, and not within the model's."""
    tool_children: int = 4
    tool_seconds: float = 0.0
    rate: Mapping[str, float] = field(default_factory=dict)
    """Runs a second that each tenant submits, at times that have nothing to do with each other."""
    at_once: int = 0
    """Runs that one client submits at the beginning, each once the one before was acknowledged."""
    weights: Mapping[str, float] = field(default_factory=dict)
    caps: Mapping[str, int] = field(default_factory=dict)
    fair: bool = True
    shared_gate: bool = True
    in_place: bool = True
    watches_deaths: bool = True
    """The server tells who is connected."""
    keeps_submitting_until: float = inf
    seed: int = 1


class Wait(NamedTuple):
    """A step's wait for a worker."""

    ready_at: float
    seconds: float
    tenant: str
    first: bool
    """It is the first step of its run."""


@dataclass(slots=True)
class Outcome:
    """What happened, as a whole and by the second."""

    steps: int = 0
    begun: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Model calls, by tenant."""
    completed: int = 0
    failed: int = 0
    taken_over: int = 0
    """Steps whose worker died."""
    in_place: int = 0
    first_call_again: list[float] = field(default_factory=list)
    """Seconds from the death of its worker until a step was claimed again."""
    ended_at: float = 0.0
    waits: list[Wait] = field(default_factory=list)
    """Of each delivery."""
    began_at: list[float] = field(default_factory=list)
    """The times of all model calls."""
    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By the second."""

    def waited(
        self, percent: float, *, tenant: str | None = None, first: bool = False, after: float = 0.0, until: float = inf
    ) -> float:
        """The wait for a worker that so many percent of the deliveries did not exceed, or of the ``first`` of runs, of
        those that were ready within a time."""
        found = sorted(
            each.seconds
            for each in self.waits
            if after <= each.ready_at < until and tenant in (None, each.tenant) and each.first >= first
        )
        return found[min(len(found) - 1, int(len(found) * percent / 100))] if found else 0.0
