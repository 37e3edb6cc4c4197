"""The costs of a step by component, as they were measured: what the simulation calculates with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MS: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU time in seconds, user and system, of one core of the machine that it was measured on."""

    worker: float
    """Of a model worker for a model step, with the inline tool call behind it."""
    redis_in_place: float
    """Of Redis for a settle that goes on with the next model step."""
    redis_claim: float
    """Of Redis for a delivery and its claim."""
    redis_settle: float
    """Of Redis for a settle that does not go on."""
    redis_submit: float
    api_submit: float
    tools: float = 0.0
    """Of a tools worker for a tool step, its children included."""
    outside: float = 0.0
    """Of the model server and the client, on a machine that they share."""

    worker_before: float = 0.45
    """The share of a step's CPU time before its call; the rest follows its answer."""


MEASURED: Final = Costs(
    worker=0.99 * MS,
    redis_in_place=0.27 * MS,
    redis_claim=0.13 * MS,
    redis_settle=0.22 * MS,
    redis_submit=0.25 * MS,
    api_submit=0.65 * MS,
    tools=1.99 * MS,
    outside=0.15 * MS,
)
"""docs/why/bench.md and docs/scale.md say when and where."""
