"""A run in hand: cancel it, put something into it, go on with it after its end."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Request, Response

from api.agents import AGENT_PROBLEMS
from api.answers import REPLAYED, answer_asked, answer_run
from api.backend import backend, prompt
from api.bodies import read_body, read_optional_body
from api.conflicts import conflict_problem, run_of
from api.door import admit_cost, admit_retry, limits_cost
from api.edge import asked_by, ms_since_arrival
from api.headers import JSON, accepted, idempotency_key
from api.items import admit_items
from api.native.links import Run, run_path
from api.openapi import operation
from api.problems import Fault, Problem
from api.queries import Query, read_query
from palaver.actions import RunInput, Steering
from palaver.errors import StateConflict
from palaver.failpoints import failpoint
from palaver.fields import AtMost, Strict
from palaver.models import CancelMode, Retry

router = APIRouter(tags=["runs"])

_RUN: Final = {"run_id": "The run's id."}
_ACTION: Final = "act_0123456789abcdef01234567"


class CancelRequest(Strict):
    """How to stop a run."""

    mode: CancelMode = "now"
    """``graceful``: what is under way finishes and is kept, nothing new begins. ``now``: model calls are closed and
    tools stopped. ``rollback``: as ``now``, and the run's messages are withdrawn. A stronger mode later takes over."""
    reason: Annotated[str, AtMost("reason")] | None = None
    """Kept on the run."""


@router.post(
    "/v1/runs/{run_id}/cancel",
    summary="Cancel a run",
    openapi_extra=operation(
        path=_RUN,
        headers=("Idempotency-Key",),
        body=CancelRequest,
        body_required=False,
        examples={"after what is under way": {"mode": "graceful", "reason": "the user left"}},
        answers={
            200: ("Cancelled, now or before.", Run),
            202: ("Acknowledged: it will end as cancelled, whatever its worker brings later.", Run),
        },
        problems=("invalid_idempotency_key", "run_not_found", "run_ended", "not_durable"),
    ),
)
async def cancel(request: Request) -> Response:
    """Ask a run to stop. Asking again changes nothing, so an `Idempotency-Key` is taken and not needed."""
    accepted(request, JSON)
    read_query(request, Query)
    idempotency_key(request)
    run_id = request.path_params["run_id"]
    wanted = await read_optional_body(request, CancelRequest)
    here = backend(request)
    by, waited = asked_by(request), ms_since_arrival(request)
    runs = here.store.runs
    settled = await prompt(runs.cancel(run_id, mode=wanted.mode, reason=wanted.reason, by=by, acked_ms=waited))
    failpoint("run.cancelled")
    await here.follow_up(settled)
    return answer_asked(await prompt(runs.get(run_id)))


@router.post(
    "/v1/runs/{run_id}/input",
    summary="Answer a run, steer it, pause and resume it",
    openapi_extra=operation(
        path=_RUN,
        headers=("Idempotency-Key",),
        body=RunInput,
        examples={
            "approve": {"items": [{"type": "approval", "action_id": "all", "decision": "approve"}]},
            "deny": {
                "items": [
                    {"type": "approval", "action_id": _ACTION, "decision": "deny", "reason": "Not on a Sunday."}
                ]
            },
            "edit": {
                "items": [
                    {
                        "type": "approval",
                        "action_id": _ACTION,
                        "decision": "edit",
                        "arguments": {"expression": "2 + 2"},
                    }
                ]
            },
            "output": {"items": [{"type": "tool_output", "call_id": "call_1", "output": {"lines": 12}}]},
            "steer": {"items": [{"type": "message", "content": "In metres, please."}]},
            "pause": {"items": [{"type": "pause", "now": True}]},
            "resume": {"items": [{"type": "resume"}]},
        },
        answers={
            202: ("Taken, all of it. `Idempotency-Replayed: true`: it was before.", Run),
            200: ("Taken, and the run has ended.", Run),
        },
        problems=(
            "invalid_idempotency_key", "idempotency_key_reused", "run_not_found", "run_ended", "unknown_action",
            "no_pending_action", "action_already_resolved", "action_expired", "wrong_action", "digest_mismatch",
            "not_paused", "conversation_full", "steering_full", "duplicate_item", "invalid_arguments", "unknown_tool",
            "empty_input", "store_nearly_full", "not_durable",
        ),
    ),
)  # fmt: skip
async def send_input(request: Request) -> Response:
    """All items take effect, or none. A conflict lists the run's `pending_actions`. Where the store is nearly full,
    messages are refused; decisions and outputs are not: they let runs end."""
    accepted(request, JSON)
    read_query(request, Query)
    key = idempotency_key(request)
    run_id = request.path_params["run_id"]
    wanted = await read_body(request, RunInput)
    here = backend(request)
    if any(isinstance(item, Steering) for item in wanted.items):
        await prompt(here.store.room.admit())
    await admit_items(run_id, wanted.items, here)
    try:
        acted = await prompt(here.store.control.act(run_id, wanted.items, by=asked_by(request), idempotency_key=key))
    except StateConflict as conflict:
        raise await conflict_problem(conflict, here) from None
    failpoint("run.acted")
    await here.follow_up(acted.settled)
    return answer_asked(await prompt(here.store.runs.get(run_id)), REPLAYED if acted.replayed else None)


@router.post(
    "/v1/runs/{run_id}/retry",
    summary="Go on with a run that has ended, or fork it",
    status_code=202,
    openapi_extra=operation(
        path=_RUN,
        headers=("Idempotency-Key",),
        body=Retry,
        body_required=False,
        examples={
            "with another model": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}},
            "fork": {"from_step": 2, "input": "Take the train instead."},
        },
        answers={202: ("A new run goes on. `Location` is that run; `Idempotency-Replayed: true`: it did before.", Run)},
        problems=(
            "invalid_idempotency_key", "idempotency_key_reused", "run_not_found", "run_active", "nothing_to_retry",
            "conversation_moved_on", "conversation_changed", "conversation_full", "queue_full",
            "unknown_step", *AGENT_PROBLEMS, "unknown_price", "empty_input", "invalid_time",
            "too_many_runs", "store_nearly_full", "not_durable",
        ),
    ),
)  # fmt: skip
async def retry(request: Request) -> Response:
    """A new run goes on with what the old one did; that stays as it ended. With `from_step` in a new conversation."""
    accepted(request, JSON)
    read_query(request, Query)
    key = idempotency_key(request)
    run_id = request.path_params["run_id"]
    here = backend(request)
    wanted = admit_retry(await read_optional_body(request, Retry), here)
    runs = here.store.runs
    if limits_cost(wanted.budget) and wanted.agent is None:
        admit_cost((await prompt(runs.get(run_id))).agent, here, whose="run")
    try:
        made = await prompt(here.store.control.retry(run_id, wanted, idempotency_key=key, by=asked_by(request)))
    except StateConflict as conflict:
        if conflict.code != "unknown_step":
            raise
        why = f"is not a step that a model answered in; the run came to step {(await prompt(runs.get(run_id))).step}"
        raise Problem.of_faults([Fault("/from_step", "unknown_step", why)]) from None
    here.publisher.publish_soon(made.deliveries)
    headers = {"Location": run_path(made.run_id), **(REPLAYED if made.replayed else {})}
    return answer_run(await run_of(made, here), 202, headers)
