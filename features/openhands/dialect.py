"""The dialect that the routes here are added to: its key, its problems, its probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import parse_qs
from uuid import UUID

import orjson
from pydantic import Field
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from api.http.answers import answer
from api.http.auth import bearer
from api.http.headers import JSON
from api.http.problems import Problem
from api.http.queries import AnyQuery
from api.http.requests import request_id_of
from api.kit.dialects import Dialect
from api.kit.openapi import ErrorFormat
from api.kit.signatures import InPath
from palaver import operations
from palaver.config.environment import FromEnvironment
from palaver.errors import FieldError, Refused
from palaver.operations import Backend, Caller

from .agents import there
from .tables import HTTP_STATUS, TABLES
from .wire import OpenHandsHealth, OpenHandsServerInfo

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


def respond(problem: Problem, request: HTTPConnection) -> Response:
    """Return the answer to a request."""
    status = HTTP_STATUS.get(problem.code, problem.status)
    body: dict[str, Any] = {"detail": [_fault(fault) for fault in problem.faults] or problem.sentence}
    if status == 500:
        body = {"detail": "Internal Server Error", "exception": problem.title, "error_id": request_id_of(request)}
    return Response(orjson.dumps(body), status, problem.headers, media_type=JSON)


def _fault(fault: FieldError) -> dict[str, Any]:
    place = there(fault.pointer)
    where = ["query", place[1:]] if place.startswith("?") else ["body", *filter(None, place.split("/"))]
    return {"loc": where, "msg": fault.message, "type": fault.code}


PREFIX: Final = "/openhands"
_MOST_FIELDS: Final = 16


def key_of(scope: Scope, headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the key of ``X-Session-API-Key``, of ``Authorization``, or of the query of a socket, as older clients send
    it."""
    key = headers.get(b"x-session-api-key") or bearer(scope, headers)
    if key is None and scope["type"] == "websocket":
        return _in_query(scope["query_string"])
    return key


def _in_query(query: bytes) -> bytes | None:
    try:
        keys = parse_qs(query, max_num_fields=_MOST_FIELDS).get(b"session_api_key", [])
    except ValueError:
        # More fields than any client sends.
        return None
    return keys[0] if keys else None


class OpenHandsSettings(FromEnvironment, prefix="PALAVER_OPENHANDS_"):
    """The settings of operators for this dialect."""

    patience: float = Field(default=50.0, gt=0, le=3600)
    """Seconds that a model may take for a question, a title or a summary; older clients wait for a minute at most."""


OPENHANDS: Final = Dialect(
    "openhands",
    PREFIX,
    respond,
    ErrorFormat(JSON, "OpenHandsError", SCHEMA),
    key_of,
    query=AnyQuery,
    about="The same conversations for OpenHands' clients.",
    tables=TABLES,
    settings=OpenHandsSettings,
    package=__package__,
    modules=("conversations", "creating", "history", "sockets", "verbs"),
)


def number_of(text: str) -> UUID:
    """Return the number of the conversation that a text names.

    Raises:
        Refused: it is no UUID.
    """
    try:
        return UUID(text)
    except ValueError:
        raise Refused(
            "validation_error", faults=[FieldError("/conversation_id", "uuid_parsing", "must be a UUID")]
        ) from None


UUID_PATTERN: Final = "^[0-9A-Fa-f]{8}-?([0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}$"


async def _keep_to(backend: Backend, caller: Caller, number: UUID) -> None:
    await operations.keep_to_conversation(backend, caller, operations.conversation_of(backend, number))


async def _look(backend: Backend, number: UUID, _: Caller) -> None:
    await operations.read_conversation(backend, operations.conversation_of(backend, number))


ConversationUuid = Annotated[
    UUID, InPath("The conversation, a UUID.", number_of, "uuid", UUID_PATTERN, _keep_to, _look)
]
EventUuid = Annotated[str, InPath("The event's id.")]


@OPENHANDS.route(
    "GET",
    "/openhands/server_info",
    scope=None,
    tag="openhands",
    summary="Ask what the server is",
    answers={200: ("Its name and version.", OpenHandsServerInfo)},
)
async def server_info() -> Response:
    """Wants no key. The version is Palaver's."""
    return answer(OpenHandsServerInfo())


@OPENHANDS.route(
    "GET",
    "/openhands/health",
    scope=None,
    tag="openhands",
    summary="Is it there?",
    answers={200: ("It is.", OpenHandsHealth)},
)
async def health() -> Response:
    """Wants no key, as clients send none here."""
    return answer(OpenHandsHealth())


@OPENHANDS.route(
    "GET",
    "/openhands/alive",
    scope=None,
    tag="openhands",
    summary="Does it live?",
    answers={200: ("Yes.", OpenHandsHealth)},
)
async def alive() -> Response:
    """Wants no key."""
    return answer(OpenHandsHealth())


@OPENHANDS.route(
    "GET",
    "/openhands/ready",
    scope=None,
    tag="openhands",
    summary="Can it serve?",
    answers={200: ("It can: Redis answers.", OpenHandsHealth)},
    problems=("unavailable",),
)
async def ready(backend: Backend) -> Response:
    """Wants no key."""
    await operations.check_store(backend)
    return answer(OpenHandsHealth())
