"""The dialect that the routes here are added to: its problems, and the parts of its paths."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from pydantic import Field, StringConstraints
from starlette.requests import HTTPConnection
from starlette.responses import Response

from api.http.headers import JSON
from api.http.problems import Problem
from api.http.requests import request_id_of
from api.kit.dialects import Dialect
from api.kit.openapi import ErrorFormat
from api.kit.signatures import InPath
from palaver import operations
from palaver.operations import Backend, Caller

from .tables import TABLES

PREFIX: Final = "/ag-ui"
NAME: Final = "ag_ui"
_SCHEMA: Final[dict[str, Any]] = {
    "title": "AgUiProblem",
    "type": "object",
    "required": ["message", "code", "requestId"],
    "properties": {
        "message": {"type": "string"},
        "code": {"type": "string"},
        "requestId": {"type": "string"},
        "runId": {"type": "string", "description": "The run that stands in the way."},
    },
}
ThreadId = Annotated[
    str,
    StringConstraints(pattern=r"^[!-~]{1,128}$"),
    Field(description="The id of the thread, as the client has chosen it."),
]


def respond(problem: Problem, request: HTTPConnection) -> Response:
    """Return the answer to a request that a problem ended before its stream."""
    body = {"message": problem.sentence, "code": problem.code, "requestId": request_id_of(request)}
    if problem.run_id is not None:
        body["runId"] = problem.run_id
    return Response(orjson.dumps(body), problem.status, problem.headers, media_type=JSON)


AG_UI: Final = Dialect(
    NAME,
    PREFIX,
    respond,
    ErrorFormat(JSON, "AgUiProblem", _SCHEMA),
    about="The same runs for kits that speak AG-UI.",
    tables=TABLES,
    package=__package__,
    modules=("running", "stopping"),
)


def conversation_of_thread(backend: Backend, thread_id: str) -> str:
    """Return the id of the conversation that a thread is, whether there is one or not."""
    return operations.conversation_named(backend, NAME, thread_id)


async def _keep(backend: Backend, caller: Caller, thread_id: str) -> None:
    await operations.keep_to_named(backend, caller, conversation_of_thread(backend, thread_id))


ThreadInPath = Annotated[str, InPath("The id of the thread.", keep=_keep)]
