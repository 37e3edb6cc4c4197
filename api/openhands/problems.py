"""Problems on the wire of OpenHands: ``{"detail": …}``, a sentence, or what is wrong with a body, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson
from starlette.responses import Response

from palaver.errors import Fault

from ..headers import JSON
from ..problems import Problem
from .agents import there

SCHEMA: Final[dict[str, Any]] = {
    "title": "OpenHandsError",
    "type": "object",
    "required": ["detail"],
    "properties": {
        "detail": {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["loc", "msg", "type"],
                        "properties": {
                            "loc": {"type": "array", "items": {"type": "string"}},
                            "msg": {"type": "string"},
                            "type": {"type": "string"},
                        },
                    },
                },
            ]
        }
    },
}
_STATUS: Final[Mapping[str, int]] = MappingProxyType(
    # Clients take 409 for a run that goes on, which they wait for, 429 for what passes, any other 4xx for the end.
    {
        "steering_full": 429,
        "queue_full": 429,
        "conversation_changed": 429,
        "conversation_full": 422,
        "conversation_moved_on": 422,
        "nothing_to_answer": 422,
        "nothing_to_retry": 422,
    }
)


def respond(problem: Problem, path: str, request_id: str) -> Response:
    """The answer to a request for ``path``."""
    status = _STATUS.get(problem.code, problem.status)
    body: dict[str, Any] = {"detail": [_fault(fault) for fault in problem.faults] or _sentence(problem)}
    if status == 500:
        body = {"detail": "Internal Server Error", "exception": problem.title, "error_id": request_id}
    return Response(orjson.dumps(body), status, problem.headers, media_type=JSON)


def _sentence(problem: Problem) -> str:
    return ": ".join(filter(None, (problem.title, problem.detail)))


def _fault(fault: Fault) -> dict[str, Any]:
    place = there(fault.pointer)
    where = ["query", place[1:]] if place.startswith("?") else ["body", *filter(None, place.split("/"))]
    return {"loc": where, "msg": fault.message, "type": fault.code}
