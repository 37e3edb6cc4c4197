"""Routes of an existing run: cancel, send input, retry."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.actions import RunInput
from palaver.schemas.fields import AtMost, Strict
from palaver.schemas.models import CancelMode, Retry

from ..http.audit import detail
from ..http.headers import IdempotencyKey
from .answers import REPLAYED, answer_asked, answer_run, headers_of
from .dialect import NATIVE, RunId
from .links import Run

_ACTION: Final = "act_0123456789abcdef01234567"


class CancelRequest(Strict):
    """The way to stop a run."""

    mode: CancelMode = "now"
    """``graceful``: work that is under way finishes and counts, nothing new begins. ``now``: model calls are closed and
    tools stopped. ``rollback``: as ``now``, and the run's messages are withdrawn. A stronger mode later takes over."""
    reason: Annotated[str, AtMost("reason")] | None = None
    """The reason, for the record of the run."""


_NOW: Final = CancelRequest.model_construct()
_AS_IT_WAS: Final = Retry.model_construct()


@NATIVE.route(
    "POST",
    "/v1/runs/{run_id}/cancel",
    scope="runs:act",
    tag="runs",
    summary="Cancel a run",
    examples={"after what is under way": {"mode": "graceful", "reason": "the user left"}},
    answers={
        200: ("Cancelled, now or before.", Run),
        202: ("Acknowledged: it will end as cancelled, whatever its worker brings later.", Run),
    },
    problems=("run_not_found", "run_ended", "not_durable", "agent_not_allowed"),
)
async def cancel(
    backend: Backend, caller: Caller, run_id: RunId, key: IdempotencyKey, body: CancelRequest = _NOW
) -> Response:
    """Ask a run to stop. Asking again changes nothing, so an `Idempotency-Key` is taken and not needed."""
    detail(mode=body.mode)
    return answer_asked(await operations.cancel(backend, run_id, caller, mode=body.mode, reason=body.reason))


@NATIVE.route(
    "POST",
    "/v1/runs/{run_id}/input",
    scope=("runs:act", "actions:approve"),
    tag="runs",
    summary="Answer a run, steer it, pause and resume it",
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
        "approve as a second person": {
            "items": [{"type": "approval", "action_id": _ACTION, "decision": "approve", "digest": "0" * 64}]
        },
        "deny and stop": {
            "items": [{"type": "approval", "action_id": "all", "decision": "deny"}, {"type": "stop"}]
        },
    },
    answers={
        202: ("Taken, all of it. `Idempotency-Replayed: true`: it was before.", Run),
        200: ("Taken, and the run has ended.", Run),
    },
    problems=(
        "idempotency_key_reused", "run_not_found", "run_ended", "unknown_action",
        "no_pending_action", "action_already_resolved", "action_expired", "wrong_action", "digest_mismatch",
        "second_person_required", "not_to_be_edited", "agent_not_allowed",
        "not_paused", "conversation_full", "steering_full", "duplicate_item", "invalid_arguments", "unknown_tool",
        "empty_input", "store_nearly_full", "not_durable",
    ),
)  # fmt: skip
async def send_input(backend: Backend, caller: Caller, run_id: RunId, key: IdempotencyKey, body: RunInput) -> Response:
    """All items take effect, or none. A conflict lists the run's `pending_actions`. Where the store is nearly full,
    messages are refused; decisions and outputs are not: they let runs end."""
    detail(items=[" ".join(filter(None, (item.type, getattr(item, "decision", None)))) for item in body.items])
    acted = await operations.act(backend, run_id, body.items, caller, key=key)
    return answer_asked(acted.run, REPLAYED if acted.replayed else None)


@NATIVE.route(
    "POST",
    "/v1/runs/{run_id}/retry",
    scope="runs:act",
    tag="runs",
    summary="Go on with a run that has ended, or fork it",
    examples={
        "with another model": {"agent": {"model": "fake/tool-20", "tools": ["calculator"]}},
        "fork": {"from_step": 2, "input": "Take the train instead."},
    },
    answers={202: ("A new run goes on. `Location` is that run; `Idempotency-Replayed: true`: it did before.", Run)},
    problems=(
        "idempotency_key_reused", "run_not_found", "run_active", "nothing_to_retry",
        "conversation_moved_on", "conversation_changed", "conversation_full", "queue_full", "tenant_erased",
        "unknown_step", *AGENT_PROBLEMS, "unknown_price", "empty_input", "invalid_time",
        "too_many_runs", "tenant_queue_full", "store_nearly_full", "not_durable",
    ),
)  # fmt: skip
async def retry(
    backend: Backend, caller: Caller, run_id: RunId, key: IdempotencyKey, body: Retry = _AS_IT_WAS
) -> Response:
    """A new run goes on with what the old one did; that stays as it ended. With `from_step` in a new conversation."""
    taken = await operations.retry(backend, run_id, body, caller, key=key)
    return answer_run(taken.run, 202, headers_of(taken))
