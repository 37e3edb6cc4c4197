"""Problems on the wire of this dialect: RFC 9457, ``application/problem+json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson
from starlette.responses import Response

from .problems import CODES, Problem

MEDIA_TYPE: Final = "application/problem+json"
_SAFE_PATH: Final = re.compile(r"/[A-Za-z0-9/_.-]{0,200}")

_ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "run_active": "Only a run that has ended can be retried or deleted.",
        "conversation_moved_on": "Retry the newest run, or fork this one with from_step.",
        "conversation_changed": "Send the same request again.",
        "conversation_full": "Begin a new one, fork this one from an earlier step, or delete runs of it.",
        "queue_full": "Wait until runs of it have ended, or cancel them.",
        "secrets_full": "Remove some of them: those that are set to null.",
        "no_secret_key": "The operator of the server has to set it (docs/reference/settings.md).",
        "steering_full": "Wait until the model has been told, or resume the run if it is paused.",
        "nothing_to_answer": "Give the run an input.",
        "nothing_to_retry": "Or fork the run with from_step.",
        "pending_action": (
            "Answer the run's pending_actions with POST /v1/runs/{run_id}/input, cancel it, "
            "or submit with on_conflict interrupt, rollback or steer."
        ),
        "unknown_action": "Its pending_actions are those that can be answered.",
        "action_already_resolved": "The first answer counts.",
        "too_many_runs": "Nothing was taken on; runs must end first.",
        "tenant_queue_full": "Nothing was taken on; runs of the tenant must begin or end first.",
        "store_nearly_full": "Nothing was taken on; the runs that there are go on.",
        "wrong_action": "The type of a pending action says which of the two it is.",
        "digest_mismatch": "Look at the arguments of the pending action again, then decide with its digest.",
    }
)
"""Advice about a refusal, where the store's message has none."""

PROBLEM: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "RFC 9457. What the client sent is never quoted.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance", "code", "errors", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "`/errors/` and the code."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": ["string", "null"]},
        "instance": {"type": ["string", "null"]},
        "code": {"type": "string", "enum": sorted(CODES)},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "message"],
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "A JSON pointer into the body, or `?parameter`.",
                    },
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
        "request_id": {"type": "string"},
        "run_id": {"type": "string", "description": "The run that stands in the way."},
        "pending_actions": {
            "type": "array",
            "description": "What that run waits for, where that helps.",
            "items": {"$ref": "#/components/schemas/PendingAction"},
        },
    },
}


def respond(problem: Problem, path: str, request_id: str) -> Response:
    """The answer to a request for ``path``."""
    body: dict[str, Any] = {
        "type": f"/errors/{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": _detail(problem),
        "instance": path if _SAFE_PATH.fullmatch(path) else None,
        "code": problem.code,
        "errors": [
            {"pointer": fault.pointer, "code": fault.code, "message": fault.message} for fault in problem.faults
        ],
        "request_id": request_id,
    }
    if problem.run_id is not None:
        body["run_id"] = problem.run_id
    if problem.pending_actions is not None:
        body["pending_actions"] = [action.model_dump(mode="json") for action in problem.pending_actions]
    return Response(orjson.dumps(body), problem.status, problem.headers, media_type=MEDIA_TYPE)


def _detail(problem: Problem) -> str | None:
    """Return the fault, and advice about it."""
    advice = _ADVICE.get(problem.code, "").format(run_id=problem.run_id)
    return " ".join(filter(None, (problem.detail, advice))) or None
