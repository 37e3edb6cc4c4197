"""The open steps of a run: its present work, as people see it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from palaver.errors import ErrorClassName
from palaver.schemas.fields import DataModel
from palaver.vocabulary.lifecycle import StepState
from palaver.vocabulary.step_kinds import QueueName, StepKindName

MOST_SHOWN: Final = 16
"""Steps that a run shows; a turn may have more than a hundred."""


class StepProgress(DataModel):
    """The progress of a model's answer, as its worker reported it when it last renewed the lease."""

    bytes: int
    """Bytes of the answer, whatever they mean."""
    characters: int
    """Characters of text in it."""
    at: datetime
    """The time at which the last of it came; the beginning of the call if nothing did."""


class StepFailure(DataModel):
    """Why the attempt before did not succeed."""

    error_class: ErrorClassName
    code: str
    message: str
    at: datetime


class CurrentStep(DataModel):
    """A step that is not over: a call of the model, or of a tool."""

    step: str
    """``3`` for a model step, ``3/call_id`` for a tool step."""
    kind: StepKindName
    name: str
    """The model, or the tool."""
    queue: QueueName | None = None
    """The queue of its kind, or the one that its tool named when the step was made."""
    state: StepState
    since: datetime | None = None
    """From when on it is in this state."""
    attempt: int
    """The attempt that goes on, or will be next."""
    max_attempts: int | None = None
    """The last one, after failures like the last; None as long as nothing failed."""
    worker: str | None = None
    """The worker that has it (leased)."""
    progress: StepProgress | None = None
    """The progress of a model call, after some seconds (leased)."""
    last_failure: StepFailure | None = None
    gives_up_at: datetime | None = None
    """The latest time at which this attempt, or the wait for an action, is given up, unless more comes; None while
    it is unknown."""
    again_at: datetime | None = None
    """The time of the next attempt (later)."""
