"""The dialect that the routes here are added to."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.requests import HTTPConnection
from starlette.responses import Response

from palaver.operations import keep_to_conversation, keep_to_run, read_conversation, read_run

from ..http.problem_json import MEDIA_TYPE, PROBLEM, respond
from ..http.problems import Problem
from ..http.requests import request_id_of
from ..kit.dialects import Dialect
from ..kit.openapi import ErrorFormat
from ..kit.signatures import InPath


def _respond(problem: Problem, request: HTTPConnection) -> Response:
    return respond(problem, request.scope["path"], request_id_of(request))


NATIVE: Final = Dialect("", "", _respond, ErrorFormat(MEDIA_TYPE, "Problem", PROBLEM))

RunId = Annotated[
    str, InPath("The run's id.", keep=keep_to_run, look=lambda backend, run_id, _: read_run(backend, run_id))
]
ConversationId = Annotated[
    str,
    InPath(
        "The conversation's id.", keep=keep_to_conversation, look=lambda backend, id, _: read_conversation(backend, id)
    ),
]
