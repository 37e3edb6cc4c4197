"""Runs: submit, read, list, cancel."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from api.answers import answer
from api.backend import backend, prompt
from api.bodies import read_body, read_optional_body
from api.door import admit_submission
from api.headers import EVENT_STREAM, JSON, MAX_WAIT, accepted, idempotency_key, preferred_wait
from api.openapi import operation
from api.problems import Fault, Problem
from api.queries import Number, Query, read_query
from api.sse import EventStream, frames
from api.validation import did_you_mean
from api.waiting import Until, await_run
from palaver.errors import Conflict, ErrorClass, UnknownConversation
from palaver.lifecycle import RunStatus
from palaver.models import Run, Strict, Submission
from palaver.store.runs import RunFilter

router = APIRouter(tags=["runs"])

_RUN: Final = {"run_id": "The run's id."}
_POLL: Final = {"Retry-After": "1"}
"""Seconds after which looking again may show something new."""


def _statuses(text: object) -> object:
    if not isinstance(text, str):
        return text
    names = text.split(",")
    for name in names:
        if name not in set(RunStatus):
            hint = did_you_mean(name, RunStatus) or f"; there are: {', '.join(RunStatus)}"
            raise ValueError(f"must be statuses, comma separated{hint}")
    return tuple(RunStatus(name) for name in names)


class RunsQuery(Query):
    """Which runs to list, and how many."""

    status: Annotated[tuple[RunStatus, ...], BeforeValidator(_statuses)] = Field(
        default=(), description="Only these statuses, comma separated."
    )
    conversation_id: str | None = Field(
        default=None, pattern=r"^conv_[0-9a-z]{28}$", description="Only runs of this conversation."
    )
    tag: str | None = Field(default=None, min_length=1, max_length=64, description="Only runs with this tag.")
    error_class: ErrorClass | None = Field(default=None, description="Only runs that failed with this class.")
    limit: Number = Field(default=50, ge=1, le=200, description="Runs on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")


class RunQuery(Query):
    """How long to wait for which news."""

    wait: Number = Field(default=0, ge=0, le=MAX_WAIT, description="Seconds to wait.")
    until: Until = Field(
        default=Until.ACTION,
        description="`terminal`: it has ended; `action`: or somebody must act; `change`: it moved.",
    )


class RunList(BaseModel):
    """A page of runs, newest first."""

    data: list[Run]
    next_cursor: str | None
    has_more: bool


class CancelRequest(Strict):
    """How to stop a run."""

    mode: Literal["now"] = "now"
    """``now``: running model calls are closed and tools stopped at once."""
    reason: str | None = Field(default=None, max_length=500)
    """Kept on the run."""


@router.post(
    "/v1/runs",
    summary="Submit a run",
    status_code=202,
    openapi_extra=operation(
        headers=("Idempotency-Key", "Prefer"),
        body=Submission,
        examples={
            "smallest": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}, "input": "hello"},
            "go on": {"conversation_id": "conv_00" + "0" * 26, "input": "and then?", "tags": ["demo"]},
        },
        answers={
            202: ("Taken on. `Location` is the run; `Idempotency-Replayed: true`: it was before.", Run),
            200: ("Ended, or needs an action, within `Prefer: wait`; or the events as a stream.", Run),
        },
        problems=(
            "invalid_idempotency_key", "idempotency_key_reused", "conversation_busy", "unknown_conversation",
            "unknown_provider", "unknown_tool", "duplicate_tool", "unknown_policy", "invalid_policy", "no_agent",
            "empty_input", "invalid_history", "invalid_time",
        ),
        streams=True,
    ),
)  # fmt: skip
async def submit(request: Request) -> Response:
    """Take a run on: once this answers, it will end by itself, whatever happens to this connection."""
    kind = accepted(request, JSON, EVENT_STREAM)
    read_query(request, Query)
    key = idempotency_key(request)
    here = backend(request)
    submission = admit_submission(await read_body(request, Submission), here)
    try:
        submitted = await prompt(here.store.runs.submit(submission, idempotency_key=key))
    except UnknownConversation:
        fault = Fault("/conversation_id", "unknown_conversation", "is not a conversation, or not any more")
        raise Problem.of_faults([fault]) from None
    except Conflict as conflict:
        if conflict.code != "no_agent":
            raise
        raise Problem.of_faults([Fault("/agent", "no_agent", "the conversation has none yet")]) from None
    here.publisher.publish_soon(submitted.deliveries)
    headers = {"Location": f"/v1/runs/{submitted.run_id}"}
    if submitted.replayed:
        headers["Idempotency-Replayed"] = "true"
    if kind == EVENT_STREAM:
        return EventStream(frames(here.store.feeds, submitted.run_id, 0), here.closing, headers)
    run = await prompt(here.store.runs.get(submitted.run_id))
    if wait := preferred_wait(request):
        headers["Preference-Applied"] = f"wait={wait}"
        run = await await_run(here, run, Until.ACTION, wait)
        if Until.ACTION.reached(run, run):
            return answer(run, 200, headers)
    return answer(run, 202, headers | _POLL)


@router.get(
    "/v1/runs",
    summary="List runs, newest first",
    openapi_extra=operation(
        query=RunsQuery,
        answers={200: ("A page; `Link` has the next.", RunList)},
        problems=("invalid_cursor",),
    ),
)
async def list_runs(request: Request) -> Response:
    """Runs that all filters admit. With filters a page may be short, even empty, although `has_more`."""
    accepted(request, JSON)
    query = read_query(request, RunsQuery)
    admitted = RunFilter(frozenset(query.status), query.conversation_id, query.tag, query.error_class)
    try:
        page = await prompt(backend(request).store.runs.list(admitted, limit=query.limit, cursor=query.cursor or None))
    except ValueError:
        if not query.cursor:
            raise
        raise Problem("invalid_cursor", "The cursor is not one that a list of runs gave.") from None
    headers: dict[str, str] = {}
    if page.next_cursor is not None:
        headers["Link"] = f'<{_next_page(query, page.next_cursor)}>; rel="next"'
    more = page.next_cursor is not None
    return answer(RunList(data=page.runs, next_cursor=page.next_cursor, has_more=more), headers=headers)


def _next_page(query: RunsQuery, cursor: str) -> str:
    given: dict[str, Any] = query.model_dump(mode="json", exclude_defaults=True, exclude={"status", "cursor"})
    if query.status:
        given["status"] = ",".join(query.status)
    return f"/v1/runs?{urlencode(given | {'cursor': cursor})}"


@router.get(
    "/v1/runs/{run_id}",
    summary="Read a run, or wait for it",
    openapi_extra=operation(
        path=_RUN,
        query=RunQuery,
        answers={200: ("The run as it is now: far enough, or the time is up.", Run)},
        problems=("run_not_found",),
    ),
)
async def read_run(request: Request) -> Response:
    """With `wait`, the answer comes when `until` is reached, or after that many seconds."""
    accepted(request, JSON)
    query = read_query(request, RunQuery)
    here = backend(request)
    run = await prompt(here.store.runs.get(request.path_params["run_id"]))
    return answer(await await_run(here, run, query.until, query.wait))


@router.post(
    "/v1/runs/{run_id}/cancel",
    summary="Cancel a run",
    openapi_extra=operation(
        path=_RUN,
        body=CancelRequest,
        body_required=False,
        answers={
            200: ("Cancelled, now or before.", Run),
            202: ("Acknowledged: it will end as cancelled, whatever its worker brings later.", Run),
        },
        problems=("run_not_found", "run_ended"),
    ),
)
async def cancel(request: Request) -> Response:
    """Ask a run to stop. Asking again changes nothing."""
    accepted(request, JSON)
    read_query(request, Query)
    run_id = request.path_params["run_id"]
    wanted = await read_optional_body(request, CancelRequest)
    here = backend(request)
    settled = await prompt(here.store.runs.cancel(run_id, mode=wanted.mode, reason=wanted.reason))
    if settled.upcoming is not None:
        await here.wake(settled.upcoming)
    run = await prompt(here.store.runs.get(run_id))
    return answer(run, 200) if run.status.terminal else answer(run, 202, _POLL)
