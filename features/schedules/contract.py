"""Operations on schedules and their ticks."""

from __future__ import annotations

from typing import Final, NamedTuple

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.agents import Absent, OtherVersion, Removed, TenantErased, TooMany
from palaver.store.scripting.contracts.claims import StaleClaim, TickBusy
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.wire import Json
from palaver.vocabulary.durations import Seconds


@dataclass(frozen=True, slots=True)
class ScheduleKept:
    """It is as the request says."""

    version: int
    new: bool
    """There was none of that name."""


@dataclass(frozen=True, slots=True)
class ScheduleChanged:
    """It is not as it was read, or is not due: read it again."""


@dataclass(frozen=True, slots=True)
class ClaimedTick:
    """A tick to carry out."""

    tick: int
    """ms."""
    order: Json
    """The run, and in whose name, as the schedule had them when the tick was first claimed."""
    timing: Json
    last: str | None
    """The run of the tick before."""
    missed_since: int | None
    claimed_at: int
    """The time at which it was claimed first, ms."""
    updated: Json
    """The last put or resumption of the schedule: by which name, and when."""


@dataclass(frozen=True, slots=True)
class TickSettled:
    """It is over, or waits."""


class NextTick(NamedTuple):
    """A tick that is to come."""

    tick: int | None
    """ms; None: there is none any more."""
    at: int | None
    """The same with its jitter."""


class KeepSchedule(Script[ScheduleKept | OtherVersion | TooMany | TenantErased]):
    """Make a schedule, or change it. One with the same times keeps its next tick."""

    grows = True

    schedule: Key
    names: Key
    """The names of all schedules of the tenant."""
    due: Key
    erasure: Key
    schedule_name: str
    member: str
    """Its place in the index of what is due."""
    expected: int | None
    """The version that it must have until now: 0 for none, -1 for any; None if that does not matter."""
    order: Json
    timing: Json
    made: Json
    """The key that asks, and the time."""
    next: NextTick


class PauseSchedule(Script[ScheduleKept | Absent]):
    """Pause a schedule, or let it go on with the ticks from now on."""

    when_full = True

    schedule: Key
    due: Key
    member: str
    paused: bool
    made: Json
    next: NextTick


class RemoveSchedule(Script[Removed | OtherVersion | Absent]):
    """Forget a schedule. A tick that is being carried out may submit its run yet."""

    when_full = True

    schedule: Key
    ticks: Key
    names: Key
    due: Key
    schedule_name: str
    member: str
    expected: int | None
    """As for `KeepSchedule`."""


class ClaimTick(Script[ClaimedTick | ScheduleChanged | TickBusy | Absent]):
    """Claim the tick that is due, or go on with one that was claimed and not settled in time."""

    schedule: Key
    due: Key
    member: str
    claim: str
    """A text that no other process has."""
    lease: Seconds
    """For how long no other process carries it out."""
    version: int
    """The version that the next fields are made of."""
    before: int
    """The next tick that it had."""
    tick: int
    """The tick to carry out: that, or a later one."""
    missed_since: int | None
    next: NextTick


class SettleTick(Script[TickSettled | StaleClaim]):
    """Write what became of a tick, or let it wait."""

    when_full = True

    schedule: Key
    ticks: Key
    due: Key
    counts: Key
    member: str
    claim: str
    wait: Seconds | None
    """Seconds after which it is to be looked at again; None: it is over."""
    outcome: str
    run: str | None
    """The run that it submitted."""
    entry: Json
    """A `ScheduleTick`."""


SCRIPTS: Final = (KeepSchedule, PauseSchedule, RemoveSchedule, ClaimTick, SettleTick)
