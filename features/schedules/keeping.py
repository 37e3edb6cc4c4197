"""Schedules: put, read, listed, paused, resumed, removed, and carried out now."""

from __future__ import annotations

from itertools import islice

from palaver.errors import FieldError, Refused
from palaver.late import dataclass
from palaver.operations.admission import admit_submission, refuse
from palaver.operations.admission.judging import ordered_faults
from palaver.operations.admission.places import below
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.bearers import bearer_of_order
from palaver.operations.scopes import refuse_held
from palaver.operations.submitting import Taken, submit
from palaver.schemas.models import Submission
from palaver.schemas.schedules import ListedSchedule, NewSchedule, Schedule, ScheduledRun, Timing
from palaver.store.reading.records import instant
from palaver.vocabulary.limits import count_exceeded, limit_of

from .schedules import ScheduleOrder, Schedules
from .times import TickTimes

_SHOWN: int = 5
"""Ticks that a schedule shows of those that come."""


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """A page of schedules by name, and the cursor of the next page; None on the last one."""

    schedules: tuple[ListedSchedule, ...]
    next_cursor: str | None


async def keep_schedule(
    backend: Backend, name: str, body: NewSchedule, caller: Caller, *, expected: int | None = None
) -> tuple[Schedule, bool]:
    """Make a schedule, or change it, and say whether there was none. Its run is checked as a submit of now would be.

    Raises:
        InsufficientScope: the caller's key is held to one conversation.
        Refused: everything that is wrong with it.
        StateConflict: ``schedule_changed``, ``schedules_full``, ``tenant_erased``.
        NoRoom, NotDurable, StoreUnavailable: it was not kept, or not safely.
    """
    bearer = bearer_of_order(caller)
    times = times_of(caller.tenant, name, body.timing)
    now = await within_deadline(backend.store.part(Schedules).now())
    times.check_new(now)
    await _check_run(body.run, backend, caller)
    order = ScheduleOrder(body.run, bearer)
    if len(order.to_json()) > limit_of("schedule_bytes"):
        count_exceeded("schedule_bytes")
        most = limit_of("schedule_bytes")
        raise Refused.of_faults([FieldError("/run", "too_long", f"has more than {most} bytes, as JSON")])
    schedules, following = backend.store.part(Schedules), times.first(now)
    keeping = schedules.keep(caller.tenant, name, order, body.timing, following, expected=expected)
    _, new = await within_deadline(keeping)
    await backend.wake_planners()
    return await read_schedule(backend, name, caller), new


async def read_schedule(backend: Backend, name: str, caller: Caller) -> Schedule:
    """Return a schedule, with its next ticks. Raises UnknownSchedule: there is none of that name."""
    schedule, _ = await _read(backend, name, caller)
    (schedule,) = await within_deadline(backend.catalog.with_waiting([schedule], _goes_on))
    if schedule.next_at is None:
        return schedule
    begin = int(schedule.next_at.timestamp() * 1000) - 1
    ticks = islice(times_of(caller.tenant, name, schedule).behind(begin), _SHOWN)
    return schedule.model_copy(update={"next_times": tuple(map(instant, ticks))})


async def list_schedules(backend: Backend, caller: Caller, *, limit: int, cursor: str | None) -> SchedulePage:
    """Return a page of the caller's schedules. The cursor is the name behind which it begins.

    Raises:
        Refused: ``invalid_cursor``.
    """
    if len(cursor or "") > limit_of("cursor"):
        count_exceeded("cursor")
        raise Refused("invalid_cursor", "The cursor is longer than any that a list of schedules gave.")
    listed = await within_deadline(backend.store.part(Schedules).list(caller.tenant, after=cursor or "", limit=limit))
    shown = await within_deadline(backend.catalog.with_waiting(listed.schedules, _goes_on))
    return SchedulePage(tuple(shown), listed.last if listed.more else None)


async def pause_schedule(backend: Backend, name: str, caller: Caller) -> Schedule:
    """Let a schedule have no ticks until it is resumed; a paused one stays so.

    Raises:
        UnknownSchedule, NotDurable, StoreUnavailable: there is none of that name; it may not be paused.
    """
    await within_deadline(backend.store.part(Schedules).pause(caller.tenant, name, by=caller.name))
    return await read_schedule(backend, name, caller)


async def resume_schedule(backend: Backend, name: str, caller: Caller) -> Schedule:
    """Let a schedule go on with the ticks from now on; those that passed while it was paused are left out. That is
    judged as the submit of its run.

    Raises:
        InsufficientScope: the caller's key is held to one conversation.
        Refused: the caller may not submit its run; and as `pause_schedule`.
    """
    refuse_held(caller)
    schedule, _ = await _read(backend, name, caller)
    await _check_run(schedule.run, backend, caller)
    times = times_of(caller.tenant, name, schedule)
    following = times.first(await within_deadline(backend.store.part(Schedules).now()))
    await within_deadline(backend.store.part(Schedules).resume(caller.tenant, name, following, by=caller.name))
    await backend.wake_planners()
    return await read_schedule(backend, name, caller)


async def remove_schedule(backend: Backend, name: str, caller: Caller, *, expected: int | None = None) -> None:
    """Forget a schedule. Its runs go on.

    Raises:
        UnknownSchedule: there is none of that name.
        StateConflict: ``schedule_changed``.
        NotDurable, StoreUnavailable: it may be there still.
    """
    await within_deadline(backend.store.part(Schedules).remove(caller.tenant, name, expected=expected))


async def trigger_schedule(backend: Backend, name: str, caller: Caller, *, key: str | None) -> Taken:
    """Submit the run of a schedule now, in the name of the caller. That is no tick: whether another run of it goes on
    does not matter, and its ticks stay as they are.

    Raises:
        UnknownSchedule: there is none of that name; and whatever ``submit`` raises.
    """
    schedule, order = await _read(backend, name, caller)
    with below("/run"):
        submission = submission_of(name, schedule.run)
        return await submit(backend, submission, caller, key=key, voices={order.bearer.name or ""})


def submission_of(name: str, run: ScheduledRun) -> Submission:
    """Return the body of a run of a schedule, which lists find by a tag."""
    submission = run.submission()
    return submission.model_copy(update={"tags": (*submission.tags, f"schedule:{name}"[:64])})


def times_of(tenant: str, name: str, timing: Timing) -> TickTimes:
    """Return the ticks of a schedule. Raises Refused: the times are none."""
    return TickTimes(timing, f"{tenant}/{name}")


async def _check_run(run: ScheduledRun, backend: Backend, caller: Caller) -> None:
    with below("/run"):
        if len(run.tags) == limit_of("tags"):
            why = f"has {limit_of('tags')} entries: one more is the schedule's own"
            raise Refused.of_faults([FieldError("/tags", "too_long", why)])
        refuse(ordered_faults(run.agent, "/agent"))
        await admit_submission(run.submission(), backend, caller)


def _goes_on(schedule: ListedSchedule) -> bool:
    return schedule.next_at is not None or schedule.waiting_since is not None


async def _read(backend: Backend, name: str, caller: Caller) -> tuple[Schedule, ScheduleOrder]:
    return await within_deadline(backend.store.part(Schedules).get(caller.tenant, name))
