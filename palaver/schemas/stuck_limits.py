"""The limits beyond which a run counts as stuck, as its agent sets them."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from palaver.schemas.fields import Strict

MAX_TURNS: Final = 100
"""The longest repetition that a limit may wait for: a worker remembers so many turns of a run."""


class StuckLimits(Strict):
    """The limits beyond which a run counts as stuck (``palaver.steps.stuck``).

    A turn is all that the model asked for at once, with all results. 0 or None switches a limit off.
    """

    same_result: int | None = Field(default=4, ge=0, le=MAX_TURNS)
    """Turns in a row with the same calls and the same results."""
    same_error: int | None = Field(default=4, ge=0, le=MAX_TURNS)
    """The same where a call failed."""
    nudge_after: int | None = Field(default=3, ge=0, le=MAX_TURNS)
    """Turns in a row that failed the same way before the model gets a note to try something else."""
    alternation: int | None = Field(default=6, ge=0, le=MAX_TURNS)
    """Turns that go back and forth between the same two: A, B, A, B, …"""

    @field_validator("same_result", "same_error", "alternation")
    @classmethod
    def _takes_two(cls, value: int | None) -> int | None:
        if value == 1:
            raise ValueError("must be 0 for off, or at least 2: one turn repeats nothing")
        return value
