"""Runs: submit, list, read, delete."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller, Until
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.models import RunCount, Submission

from ..http.answers import answer
from ..http.audit import detail
from ..http.headers import EVENT_STREAM, JSON, MAX_WAIT, IdempotencyKey, Offers, PreferredWait
from ..http.queries import Number, Query
from ..kit.streams import EventStream
from .answers import answer_list, answer_run, headers_of
from .dialect import NATIVE, RunId
from .events import WatchQuery
from .filters import PAIRS, CreatedBetween, Entries, Filters
from .frames import STREAMS, frames, outlet
from .links import Run, RunList, run_json


class RunsQuery(Query, Filters):
    """The runs to list, and their number."""

    metadata: Annotated[Entries, WithJsonSchema(PAIRS)] = Field(
        default={},
        description="Only runs with all of these entries: `key=value`, several, or a JSON object.",
    )
    limit: Number = Field(default=50, ge=1, le=200, description="Runs on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")


class CountQuery(Query, CreatedBetween):
    """The runs to count."""


class RunQuery(Query):
    """The seconds to wait, and the news to wait for."""

    wait: Number = Field(default=0, ge=0, le=MAX_WAIT, description="Seconds to wait.")
    until: Until = Field(
        default=Until.ACTION,
        description="`terminal`: it has ended; `action`: or it needs an action; `change`: it moved.",
    )


@NATIVE.route(
    "POST",
    "/v1/runs",
    scope="runs:submit",
    keeps_to=True,
    tag="runs",
    summary="Submit a run",
    examples={
        "smallest": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}, "input": "hello"},
        "an agent on the server": {"agent": "support@7", "input": "Where is my order?"},
        "go on": {"conversation_id": "conv_00" + "0" * 26, "input": "and then?", "tags": ["demo"]},
        "steer": {"conversation_id": "conv_00" + "0" * 26, "input": "In metres, please.", "on_conflict": "steer"},
        "ask people and the client": {
            "agent": {
                "model": "fake/tool-20",
                "tools": ["calculator"],
                "approvals": {"require": ["calc*"], "timeout": 3600},
                "client_tools": [
                    {
                        "name": "open_file",
                        "description": "Show a file in the editor.",
                        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
                    }
                ],
            },
            "input": "hello",
        },
    },
    answers={
        202: (
            "Taken on. `Location` is the run; `Idempotency-Replayed: true`: it was before; "
            "`Palaver-Steered: true`: the run was there, and the input went into it.",
            Run,
        ),
        200: ("Ended, or needs an action, within `Prefer: wait`; or the events as a stream.", Run),
    },
    problems=(
        "idempotency_key_reused", "run_not_found", "conversation_busy", "pending_action", "conversation_changed",
        "conversation_full", "queue_full", "steering_full", "nothing_to_answer", "tenant_erased",
        "unknown_conversation", *AGENT_PROBLEMS, "unknown_price", "no_agent", "empty_input", "unsupported_content",
        "invalid_history", "invalid_time", "too_many_runs",
        "tenant_queue_full", "store_nearly_full", "not_durable", "too_many_watchers",
    ),
    also=STREAMS,
    audited=False,
)  # fmt: skip
async def submit(
    backend: Backend,
    caller: Caller,
    kind: Annotated[str, Offers((JSON, EVENT_STREAM))],
    key: IdempotencyKey,
    wait: PreferredWait,
    query: WatchQuery,
    submission: Submission,
) -> Response:
    """Take a run on: once this answers, it will end by itself, whatever happens to this connection."""
    if kind == EVENT_STREAM:
        operations.admit_watcher(backend)
    taken = await operations.submit(backend, submission, caller, key=key)
    run, headers = taken.run, headers_of(taken)
    if taken.steered:
        detail(steered=True, run=run.id)
    if kind == EVENT_STREAM:
        way = outlet()
        batches = operations.follow(backend, run.id, include=query.include, pass_on=way.pass_on)
        return EventStream(frames(batches), backend.closing, headers, outlet=way)
    if wait and operations.may_watch(backend):
        headers["Preference-Applied"] = f"wait={wait}"
        run = await operations.await_run(backend, run, Until.ACTION, wait)
        if Until.ACTION.reached(run, run):
            return answer_run(run, 200, headers)
    return answer_run(run, 202, headers)


@NATIVE.route(
    "GET",
    "/v1/runs",
    scope="runs:read",
    tag="runs",
    summary="List runs, newest first",
    answers={200: ("A page; `Link` has the next.", RunList)},
    problems=("invalid_cursor",),
)
async def list_runs(backend: Backend, query: RunsQuery) -> Response:
    """Runs that all filters admit. A page looks at 10,000 runs at most, so with filters other than those of status and
    time it may be short, even empty, although `has_more`."""
    page = await operations.list_runs(backend, query.as_filter(), limit=query.limit, cursor=query.cursor)
    return answer_list("runs", query, map(run_json, page.runs), page.next_cursor)


@NATIVE.route(
    "GET",
    "/v1/runs/count",
    scope="runs:read",
    tag="runs",
    summary="Count runs by status",
    answers={200: ("How many there are in each.", RunCount)},
)
async def count_runs(backend: Backend, query: CountQuery) -> Response:
    """Count all runs, or those that were submitted between two times."""
    return answer(await operations.count_runs(backend, query.created_after, query.created_before))


@NATIVE.route(
    "GET",
    "/v1/runs/{run_id}",
    scope="runs:read",
    tag="runs",
    summary="Read a run, or wait for it",
    answers={200: ("The run as it is now: far enough, or the time is up.", Run)},
    problems=("run_not_found", "too_many_watchers"),
)
async def read_run(backend: Backend, run_id: RunId, query: RunQuery) -> Response:
    """With `wait`, the answer comes when `until` is reached, or after that many seconds."""
    return answer_run(await operations.read_run(backend, run_id, until=query.until, seconds=query.wait), again=True)


@NATIVE.route(
    "DELETE",
    "/v1/runs/{run_id}",
    scope="runs:act",
    tag="runs",
    summary="Delete a run",
    answers={204: ("It is gone.", None)},
    problems=("run_not_found", "run_active", "not_durable", "agent_not_allowed"),
)
async def delete_run(backend: Backend, caller: Caller, run_id: RunId) -> Response:
    """Forget a run that has ended, with its events and messages."""
    await operations.delete_run(backend, run_id, caller)
    return Response(status_code=204)
