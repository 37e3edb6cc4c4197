"""Secrets of conversations: they come in, and are never shown."""

from __future__ import annotations

from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.schemas.fields import DataModel, Strict
from palaver.schemas.models import NewSecrets

from ..http.answers import answer
from ..http.audit import detail
from .dialect import NATIVE, ConversationId


class SecretChanges(Strict):
    """Secrets to set by name, and to remove where there is null. Others stay as they are."""

    secrets: NewSecrets


class SecretNames(DataModel):
    """The secrets of a conversation."""

    data: list[str]
    """Their names, in order."""


@NATIVE.route(
    "PATCH",
    "/v1/conversations/{conversation_id}/secrets",
    scope="runs:submit",
    tag="conversations",
    summary="Set secrets",
    examples={"one more, one less": {"secrets": {"GITHUB_TOKEN": "ghp_…", "OLD_TOKEN": None}}},
    answers={200: ("The names of all secrets that it has now.", SecretNames)},
    problems=("conversation_not_found", "no_secret_key", "secrets_full", "agent_not_allowed"),
)
async def set_secrets(
    backend: Backend, caller: Caller, conversation_id: ConversationId, body: SecretChanges
) -> Response:
    """Tools get them by name; they are removed from whatever says one. They go with the conversation."""
    detail(count=len(body.secrets))
    names = await operations.set_secrets(backend, conversation_id, body.secrets, caller, pointer="/secrets")
    return answer(SecretNames(data=list(names)))


@NATIVE.route(
    "GET",
    "/v1/conversations/{conversation_id}/secrets",
    scope="runs:read",
    tag="conversations",
    summary="List secrets",
    answers={200: ("The names of its secrets.", SecretNames)},
    problems=("conversation_not_found",),
)
async def secret_names(backend: Backend, conversation_id: ConversationId) -> Response:
    """Their names: their values are never shown."""
    return answer(SecretNames(data=list(await operations.secret_names(backend, conversation_id))))
