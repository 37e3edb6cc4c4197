"""The dialect that the routes here are added to: its problems, and the parts of its paths."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints
from starlette.requests import HTTPConnection
from starlette.responses import Response

from api.http.problems import Problem
from api.http.requests import request_id_of
from api.kit.dialects import Dialect
from api.kit.openapi import ErrorFormat
from api.kit.signatures import InPath
from palaver import operations
from palaver.operations import Backend, Caller

from .tables import CLASSES, TABLES

PREFIX: Final = "/ui"
NAME: Final = "ai_sdk"
CHAT_ID: Final = r"^[A-Za-z0-9_.~:@+=-]{1,128}$"
"""The pattern of the id of a chat: clients make it a part of a path."""
ChatId = Annotated[
    str, StringConstraints(pattern=CHAT_ID), Field(description="The id of the chat, as the page has chosen it.")
]
_TEXT: Final = "text/plain"
_SCHEMA: Final[dict[str, Any]] = {
    "title": "AiSdkProblem",
    "type": "string",
    "description": "What is wrong, in a sentence; in brackets the class, the code and the id of the request.",
}


def respond(problem: Problem, request: HTTPConnection) -> Response:
    """Return the answer to a request that a problem ended: a text, which clients show as it is."""
    text = f"{problem.sentence.rstrip('.')}. ({CLASSES[problem.status]}, {problem.code}, {request_id_of(request)})"
    return Response(text, problem.status, problem.headers, media_type=_TEXT)


AI_SDK: Final = Dialect(
    NAME,
    PREFIX,
    respond,
    ErrorFormat(_TEXT, "AiSdkProblem", _SCHEMA),
    about="The same runs for pages with `useChat` of the AI SDK.",
    tables=TABLES,
    package=__package__,
    modules=("chatting", "listing", "resuming"),
)


def conversation_of_chat(backend: Backend, chat_id: str) -> str:
    """Return the id of the conversation that a chat is, whether there is one or not."""
    return operations.conversation_named(backend, NAME, chat_id)


async def _keep(backend: Backend, caller: Caller, chat_id: str) -> None:
    await operations.keep_to_named(backend, caller, conversation_of_chat(backend, chat_id))


ChatInPath = Annotated[str, InPath("The id of the chat.", keep=_keep)]
