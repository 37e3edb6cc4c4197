"""Schedules: runs that are submitted at times."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from starlette.responses import Response

from api.http.answers import answer
from api.http.headers import ExpectedVersion, IdempotencyKey
from api.http.queries import Number, Query
from api.kit.signatures import NAME_PATTERN, InPath, read_name
from api.native.answers import answer_run, headers_of
from api.native.dialect import NATIVE
from api.native.links import Run, location_of, next_page
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.fields import DataModel
from palaver.schemas.schedules import ListedSchedule, NewSchedule, Schedule

from . import keeping

Name = Annotated[str, InPath("The schedule's name.", read=read_name, pattern=NAME_PATTERN)]


class SchedulesQuery(Query):
    """The number of schedules, and the place to go on from."""

    limit: Number = Field(default=50, ge=1, le=200, description="Schedules on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")


class ScheduleList(DataModel):
    """A page of schedules, by name."""

    data: list[ListedSchedule]
    next_cursor: str | None
    has_more: bool


_SUBMIT: Final = (
    *AGENT_PROBLEMS, "unknown_price", "empty_input", "unsupported_content", "invalid_history", "tenant_erased",
)  # fmt: skip


@NATIVE.route(
    "PUT",
    "/v1/schedules/{name}",
    tag="schedules",
    scope="runs:submit",
    summary="Keep a schedule",
    examples={
        "each morning": {
            "cron": "30 7 * * 1-5",
            "timezone": "Europe/Berlin",
            "run": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}, "input": "Sum up what came in."},
        },
        "each quarter of an hour": {
            "every": 900,
            "jitter": 60,
            "overlap": "queue",
            "missed": "never",
            "run": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}, "input": "Look at the queue."},
        },
    },
    answers={
        200: ("It is as the request says. `ETag` is its version.", Schedule),
        201: ("There was none of that name. `Location` is the schedule.", Schedule),
    },
    problems=(*_SUBMIT, "schedule_changed", "schedules_full", "store_nearly_full", "not_durable"),
)
async def keep_schedule(
    backend: Backend, caller: Caller, name: Name, expected: ExpectedVersion, body: NewSchedule
) -> Response:
    """A run that is submitted at each tick, in the name of the key that puts it, with the rights of its keys then. It
    is checked now as it would be then."""
    kept, new = await keeping.keep_schedule(backend, name, body, caller, expected=expected)
    return _answer(kept, 201 if new else 200, location_of(f"/v1/schedules/{name}") if new else {})


@NATIVE.route(
    "GET",
    "/v1/schedules",
    tag="schedules",
    scope="runs:read",
    summary="List the schedules",
    answers={200: ("A page of schedules, without their runs; `Link` has the next.", ScheduleList)},
    problems=("invalid_cursor",),
)
async def list_schedules(backend: Backend, caller: Caller, query: SchedulesQuery) -> Response:
    """Schedules by name."""
    page = await keeping.list_schedules(backend, caller, limit=query.limit, cursor=query.cursor)
    cursor = page.next_cursor
    shown = ScheduleList(data=[*page.schedules], next_cursor=cursor, has_more=cursor is not None)
    return answer(shown, headers=next_page("/v1/schedules", query, cursor=cursor))


@NATIVE.route(
    "GET",
    "/v1/schedules/{name}",
    tag="schedules",
    scope="runs:read",
    summary="Read a schedule",
    answers={200: ("The schedule, with its next ticks and the last ones.", Schedule)},
    problems=("schedule_not_found",),
)
async def read_schedule(backend: Backend, caller: Caller, name: Name) -> Response:
    """Its run and its times, and the ends of its last ticks. `tag=schedule:NAME` lists its runs."""
    return _answer(await keeping.read_schedule(backend, name, caller))


@NATIVE.route(
    "DELETE",
    "/v1/schedules/{name}",
    tag="schedules",
    scope="runs:submit",
    summary="Remove a schedule",
    answers={204: ("It is gone. Its runs go on.", None)},
    problems=("schedule_not_found", "schedule_changed", "not_durable"),
)
async def remove_schedule(backend: Backend, caller: Caller, name: Name, expected: ExpectedVersion) -> Response:
    """Forget a schedule. A tick that is being carried out at this moment may submit its run yet."""
    await keeping.remove_schedule(backend, name, caller, expected=expected)
    return Response(status_code=204)


@NATIVE.route(
    "POST",
    "/v1/schedules/{name}/pause",
    tag="schedules",
    scope="runs:submit",
    summary="Pause a schedule",
    answers={200: ("It is paused.", Schedule)},
    problems=("schedule_not_found", "not_durable"),
)
async def pause_schedule(backend: Backend, caller: Caller, name: Name) -> Response:
    """No tick comes until it is resumed. One that waits for the run before it is carried out yet."""
    return _answer(await keeping.pause_schedule(backend, name, caller))


@NATIVE.route(
    "POST",
    "/v1/schedules/{name}/resume",
    tag="schedules",
    scope="runs:submit",
    summary="Resume a schedule",
    answers={200: ("It goes on with the ticks from now on.", Schedule)},
    problems=("schedule_not_found", *_SUBMIT, "not_durable"),
)
async def resume_schedule(backend: Backend, caller: Caller, name: Name) -> Response:
    """Ticks that passed while it was paused are not made up for."""
    return _answer(await keeping.resume_schedule(backend, name, caller))


@NATIVE.route(
    "POST",
    "/v1/schedules/{name}/trigger",
    tag="schedules",
    scope="runs:submit",
    summary="Submit the run of a schedule now",
    answers={
        202: ("Taken on. `Location` is the run; `Idempotency-Replayed: true`: it was before.", Run),
    },
    problems=(
        "schedule_not_found", *_SUBMIT, "idempotency_key_reused", "run_not_found", "too_many_runs", "tenant_queue_full",
        "store_nearly_full", "not_durable",
    ),
)  # fmt: skip
async def trigger_schedule(backend: Backend, caller: Caller, name: Name, key: IdempotencyKey) -> Response:
    """In the name of the key that asks. That is no tick: paused or not, the ticks come as they would."""
    taken = await keeping.trigger_schedule(backend, name, caller, key=key)
    return answer_run(taken.run, 202, headers_of(taken))


def _answer(schedule: Schedule, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return answer(schedule, status, {"ETag": f'"{schedule.version}"', **(headers or {})})
