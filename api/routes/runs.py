"""Runs: submit, list, read, delete."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request, Response
from pydantic import Field
from starlette.convertors import Convertor, register_url_convertor

from api.agents import AGENT_PROBLEMS
from api.answers import REPLAYED, answer_json, answer_run
from api.backend import Backend, backend, prompt
from api.bodies import read_body
from api.conflicts import conflict_problem, run_of
from api.door import admit_cost, admit_submission, limits_cost
from api.edge import asked_by
from api.headers import EVENT_STREAM, JSON, MAX_WAIT, accepted, idempotency_key, preferred_wait
from api.listing import Filters, page_of_runs
from api.native.links import Run, RunList, page_path, run_list_json, run_path
from api.openapi import operation
from api.problems import Fault, Problem
from api.queries import Number, Query, read_query
from api.sse import EventStream, frames
from api.waiting import Until, admit_watcher, await_run, may_watch
from palaver.errors import StateConflict, UnknownConversation
from palaver.failpoints import failpoint
from palaver.models import Submission
from palaver.store.runs import Submitted

router = APIRouter(tags=["runs"])


class _RunId(Convertor[str]):
    """What may be a run's id: not the name of what is done to many."""

    regex = "(?!actions$)[^/]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("run", _RunId())

_RUN: Final = {"run_id": "The run's id."}


class RunsQuery(Query, Filters):
    """Which runs to list, and how many."""

    limit: Number = Field(default=50, ge=1, le=200, description="Runs on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")


class RunQuery(Query):
    """How long to wait for which news."""

    wait: Number = Field(default=0, ge=0, le=MAX_WAIT, description="Seconds to wait.")
    until: Until = Field(
        default=Until.ACTION,
        description="`terminal`: it has ended; `action`: or somebody must act; `change`: it moved.",
    )


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
            "invalid_idempotency_key", "idempotency_key_reused", "run_not_found", "conversation_busy", "pending_action",
            "conversation_full", "queue_full", "steering_full",
            "unknown_conversation", *AGENT_PROBLEMS, "unknown_price", "no_agent", "empty_input", "invalid_history",
            "invalid_time", "too_many_runs", "store_nearly_full", "not_durable", "too_many_watchers",
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
    if kind == EVENT_STREAM:
        admit_watcher(here)
    submission = admit_submission(await read_body(request, Submission), here)
    submitted = await _submitted(submission, key, asked_by(request), here)
    failpoint("run.submitted")
    here.publisher.publish_soon(submitted.deliveries)
    failpoint("run.answering")
    headers = {"Location": run_path(submitted.run_id)}
    if submitted.replayed:
        headers |= REPLAYED
    if submitted.steered:
        headers["Palaver-Steered"] = "true"
    run = await run_of(submitted, here)
    if kind == EVENT_STREAM:
        return EventStream(frames(here.store.feeds, run.id, 0), here.closing, headers)
    if (wait := preferred_wait(request)) and may_watch(here):
        headers["Preference-Applied"] = f"wait={wait}"
        run = await await_run(here, run, Until.ACTION, wait)
        if Until.ACTION.reached(run, run):
            return answer_run(run, 200, headers)
    return answer_run(run, 202, headers)


async def _submitted(submission: Submission, key: str | None, by: str | None, here: Backend) -> Submitted:
    """What the store made of it.

    Raises:
        Problem: it did not take it on.
    """
    if submission.on_conflict == "steer":
        await prompt(here.store.room.admit())
    try:
        if limits_cost(submission.budget) and submission.agent is None and submission.conversation_id is not None:
            kept = await prompt(here.store.runs.conversation(submission.conversation_id))
            if kept.agent is not None:
                admit_cost(kept.agent, here, whose="conversation")
        return await prompt(here.store.runs.submit(submission, idempotency_key=key, by=by))
    except UnknownConversation:
        fault = Fault("/conversation_id", "unknown_conversation", "is not a conversation, or not any more")
        raise Problem.of_faults([fault]) from None
    except StateConflict as conflict:
        if conflict.code == "no_agent":
            raise Problem.of_faults([Fault("/agent", "no_agent", "the conversation has none yet")]) from None
        raise await conflict_problem(conflict, here) from None


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
    page = await page_of_runs(backend(request), query.as_filter(), limit=query.limit, cursor=query.cursor)
    headers: dict[str, str] = {}
    if page.next_cursor is not None:
        headers["Link"] = f'<{_next_page(query, page.next_cursor)}>; rel="next"'
    return answer_json(run_list_json(page.runs, page.next_cursor), headers=headers)


def _next_page(query: RunsQuery, cursor: str) -> str:
    given: dict[str, Any] = query.model_dump(mode="json", exclude_defaults=True, exclude={"status", "cursor"})
    if query.status:
        given["status"] = ",".join(query.status)
    return page_path(given | {"cursor": cursor})


@router.get(
    "/v1/runs/{run_id:run}",
    summary="Read a run, or wait for it",
    openapi_extra=operation(
        path=_RUN,
        query=RunQuery,
        answers={200: ("The run as it is now: far enough, or the time is up.", Run)},
        problems=("run_not_found", "too_many_watchers"),
    ),
)
async def read_run(request: Request) -> Response:
    """With `wait`, the answer comes when `until` is reached, or after that many seconds."""
    accepted(request, JSON)
    query = read_query(request, RunQuery)
    here = backend(request)
    run = await here.run(request.path_params["run_id"])
    if query.wait and not query.until.reached(run, run):
        admit_watcher(here)
    return answer_run(await await_run(here, run, query.until, query.wait))


@router.delete(
    "/v1/runs/{run_id:run}",
    summary="Delete a run",
    status_code=204,
    openapi_extra=operation(
        path=_RUN,
        answers={204: ("It is gone.", None)},
        problems=("run_not_found", "run_active", "not_durable"),
    ),
)
async def delete_run(request: Request) -> Response:
    """Forget a run that has ended, with its events and what was said in it."""
    read_query(request, Query)
    await prompt(backend(request).store.control.delete_run(request.path_params["run_id"]))
    return Response(status_code=204)
