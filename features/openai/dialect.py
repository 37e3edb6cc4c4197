"""The dialect that the routes here are added to: its problems, and the parts of its paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

import orjson
from starlette.requests import HTTPConnection
from starlette.responses import Response

from api.http.auth import routed_path
from api.http.headers import JSON
from api.http.problems import Problem
from api.http.queries import AnyQuery
from api.http.requests import request_id_of
from api.kit.dialects import Dialect
from api.kit.openapi import ErrorFormat
from api.kit.signatures import InPath
from palaver.operations import Backend, Caller, keep_to_conversation, keep_to_run, read_conversation, read_run

from .ids import PATTERN, ResponseId
from .tables import MODEL_NOT_FOUND, MODELS, PROBLEMS, TABLES, ErrorType

PREFIX: Final = "/openai/v1"
_SCHEMA: Final[dict[str, Any]] = {
    "title": "OpenAiError",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string", "enum": list(ErrorType)},
                "param": {"type": ["string", "null"], "description": "The field of the body that does not fit."},
                "code": {"type": "string"},
                "run_id": {"type": "string", "description": "The run that stands in the way."},
            },
        }
    },
}
_STATUS: Final[Mapping[int, int]] = MappingProxyType({410: 409, 412: 409, 422: 400})
"""Statuses for which clients have no exception of their own, and those that they have in their place."""
_NOT_SERVED: Final = frozenset({f"{PREFIX}/responses/compact", f"{PREFIX}/responses/input_tokens"})
"""Paths of OpenAI's that would be those of responses, if these were their ids."""
_NAME: Final = re.compile(r"[a-z0-9_/]{1,64}")
_SERVED: Final = "of OpenAI's API there are responses, conversations, chat/completions and models"
_FIELDS: Final = (
    ("agent/client_tools", "tools"),
    ("agent/tools", "tools"),
    ("agent/response_format/schema", "text/format/schema"),
    ("agent/response_format", "text/format"),
    ("agent/reasoning_effort", "reasoning/effort"),
    ("agent/mcp_servers", "tools"),
    ("agent/", ""),
    ("secrets", "tools"),
    ("conversation_id", "conversation"),
)
"""Places in a body of ours, and in a body of OpenAI's."""


def respond(problem: Problem, request: HTTPConnection) -> Response:
    """Return the answer to a request that a problem ended. Clients try 409 again unless they are told not to."""
    path = routed_path(request.scope)
    if problem.code == "method_not_allowed" and path in _NOT_SERVED:
        problem = Problem("not_found")
    if problem.code == "not_found" and problem.detail is None and _NAME.fullmatch(path):
        problem = Problem("not_found", f"{path} is not served: {_SERVED}")
    kind = PROBLEMS[problem.code]
    unknown_model = problem.code in MODELS
    status = 404 if unknown_model else _STATUS.get(problem.status, problem.status)
    error: dict[str, Any] = {
        "message": _sentence(problem),
        "type": kind,
        "param": "model" if unknown_model else _param(problem),
        "code": MODEL_NOT_FOUND if unknown_model else problem.code,
        "request_id": request_id_of(request),
    }
    if problem.run_id is not None:
        error["run_id"] = problem.run_id
    headers = dict(problem.headers)
    if status == 409:
        headers["x-should-retry"] = "false"
    return Response(orjson.dumps({"error": error}), status, headers, media_type=JSON)


def _sentence(problem: Problem) -> str:
    if not problem.faults:
        return problem.sentence
    return "; ".join(f"{_place(fault.pointer)} {fault.message}".strip() for fault in problem.faults)


def _param(problem: Problem) -> str | None:
    return _place(problem.faults[0].pointer) or None if problem.faults else None


def _place(pointer: str) -> str:
    place = pointer.lstrip("/?")
    for ours, theirs in _FIELDS:
        if place.startswith(ours):
            place = theirs + place.removeprefix(ours)
            break
    return place.replace("/", ".")


OPENAI: Final = Dialect(
    "openai",
    PREFIX,
    respond,
    ErrorFormat(JSON, "OpenAiError", _SCHEMA),
    query=AnyQuery,
    about="The same runs for clients of OpenAI's API.",
    tables=TABLES,
    package=__package__,
    modules=("chat", "conversations", "models", "responses"),
)


async def _keep_to_response(backend: Backend, caller: Caller, response: ResponseId) -> None:
    await keep_to_run(backend, caller, response.run_id)


ResponseInPath = Annotated[
    ResponseId,
    InPath(
        "The response's id.",
        ResponseId.read,
        pattern=PATTERN,
        keep=_keep_to_response,
        look=lambda backend, response, _: read_run(backend, response.run_id),
    ),
]
ConversationInPath = Annotated[
    str,
    InPath(
        "The conversation's id.", keep=keep_to_conversation, look=lambda backend, id, _: read_conversation(backend, id)
    ),
]
