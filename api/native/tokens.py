"""Tokens for browsers."""

from __future__ import annotations

from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.schemas.tokens import Token, TokenRequest

from ..http.answers import answer
from ..http.audit import detail
from .dialect import NATIVE


@NATIVE.route(
    "POST",
    "/v1/tokens",
    scope=("runs:read", "runs:submit", "runs:act", "actions:approve"),
    tag="operations",
    summary="Make a token for a page",
    examples={
        "watch a run": {"run": "run_00…"},
        "chat": {"conversation": "conv_00…", "scopes": ["runs:read", "runs:submit"], "subject": "user:17"},
    },
    answers={201: ("Made. It goes where a key does, and is for one conversation.", Token)},
    problems=("run_not_found", "conversation_not_found", "no_secret_key", "not_durable"),
)
async def create_token(backend: Backend, caller: Caller, body: TokenRequest) -> Response:
    """For some minutes, with no right that the key has not which asks. It ends with that key, too. A token makes no
    others. What is done with one that has a `subject` is done by that person, `key/subject`."""
    made = await operations.create_token(backend, body, caller)
    detail(conversation=made.conversation, scopes=list(made.scopes))
    if made.subject is not None:
        detail(subject=made.subject)
    return answer(made, 201)
