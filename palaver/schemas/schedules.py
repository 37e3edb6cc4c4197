"""Schedules: the times at which runs are submitted, and what became of each time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from palaver.schemas.fields import AtMost, DataModel, Metadata, ServerName, Tags
from palaver.schemas.models import Budget, Message, Submission, Waiting, WithAgent
from palaver.vocabulary.step_kinds import USUAL_PRIORITY

ScheduleName = ServerName
"""The name of a schedule, in its tenant."""
Overlap = Literal["skip", "queue", "cancel"]
Missed = Literal["once", "never"]
TickOutcome = Literal["started", "skipped", "missed", "refused"]


class ScheduledRun(WithAgent):
    """The run that each tick submits, in a conversation of its own."""

    input: Annotated[str | tuple[Message, ...], AtMost("input_text", items="input_messages")]
    """The user's words, or messages to begin the conversation with (whole turns only)."""
    budget: Budget | None = None
    priority: int = Field(default=USUAL_PRIORITY, ge=0, le=9)
    """The place among the runs of its tenant, where steps have to wait for their turn: 0 goes first, 9 last."""
    metadata: Metadata = Field(default={})
    tags: Tags = ()

    def submission(self) -> Submission:
        """Return the body of the run."""
        return Submission(**{name: getattr(self, name) for name in self.model_fields_set})


class Timing(DataModel):
    """The times of a schedule, and what happens at each."""

    cron: Annotated[str, Field(min_length=9, max_length=200)] | None = None
    """Five fields: minute, hour, day of the month, month, day of the week, as `cron` has them."""
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """The time zone of ``cron``, by its name in the IANA database: `Europe/Berlin`."""
    every: Annotated[int, Field(ge=10, le=366 * 86400)] | None = None
    """Seconds from one tick to the next, counted from 1970-01-01T00:00:00Z: 3600 is each full hour. In the place of
    ``cron``."""
    jitter: Annotated[int, Field(ge=0, le=3600)] = 0
    """A tick is so many seconds late at most: for each the same, whichever worker carries it out."""
    overlap: Overlap = "skip"
    """The action if the run of the tick before has not ended: leave this tick out, let it wait, or cancel that run."""
    missed: Missed = "once"
    """Ticks whose time passed while no worker was there: the newest of them is carried out, or none."""


class NewSchedule(Timing):
    """The body of ``PUT /v1/schedules/{name}``: ``cron`` or ``every``, and a run."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    run: ScheduledRun

    @property
    def timing(self) -> Timing:
        """The part without the run."""
        return Timing(**self.model_dump(include={*Timing.model_fields}))


class ScheduleTick(DataModel):
    """A tick that is over."""

    tick: datetime
    """The time that the schedule says, without jitter."""
    at: datetime
    """The time at which it was carried out."""
    outcome: TickOutcome
    run_id: str | None = None
    """The run that it submitted; with ``skipped`` the one that had not ended."""
    code: str | None = None
    """The reason in a word, as an answer to the submit would have had it."""
    message: str | None = None
    missed_since: datetime | None = None
    """The first tick before this one that was not carried out; None if there was none."""


class ListedSchedule(Timing):
    """A schedule, as lists show it."""

    name: str
    version: int
    """1 for the first; another one after each change."""
    paused: bool
    next_at: datetime | None
    """The next tick; None while it is paused, or if there is none any more."""
    waiting_since: datetime | None
    """The tick that is being carried out, or waits for the end of the run before it."""
    waiting: Waiting | None = None
    """Why its ticks are not carried out: ``no_worker``, no worker takes model steps."""
    last_run_id: str | None
    """The run of the last tick that submitted one."""
    created_at: datetime
    created_by: str | None
    """The key that put it first, by its name; None without keys."""
    updated_at: datetime
    updated_by: str | None
    """The key that changed it last. Its rights are those of the runs."""


class Schedule(ListedSchedule):
    """A schedule, whole."""

    run: ScheduledRun
    next_times: tuple[datetime, ...]
    """The next ticks, as it is now."""
    ticks: tuple[ScheduleTick, ...]
    """The last ticks that are over, the newest first."""
