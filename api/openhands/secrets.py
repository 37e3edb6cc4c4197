"""Secrets of a conversation, which tools are given by name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator
from starlette.responses import Response

from palaver.schemas.fields import AtMost, SecretName, SecretText

from .. import operations
from ..operations import Backend
from .answers import OpenHandsSuccess, done
from .dialect import OPENHANDS, ConversationUuid
from .fields import Known


class StaticSecret(Known):
    """A secret that is here. Without a value it is taken away."""

    kind: Literal["StaticSecret"] = "StaticSecret"
    value: SecretText | None = None


def _value(given: object) -> object:
    match given:
        case {"kind": kind} if kind != "StaticSecret":
            raise ValueError("must be the value itself, or a StaticSecret: nothing is looked up from here")
        case dict():
            return given.get("value")
        case _:
            return given


GivenSecret = Annotated[SecretText | None, BeforeValidator(_value, json_schema_input_type=SecretText | StaticSecret)]
"""A secret as a text, or as an object of a client."""


class NewSecrets(Known):
    """Secrets by name."""

    secrets: Annotated[dict[SecretName, GivenSecret], AtMost("secrets")]


@OPENHANDS.route(
    "POST",
    "/openhands/api/conversations/{conversation}/secrets",
    tag="openhands",
    summary="Set secrets",
    answers={200: ("Tools are given them from their next call on.", OpenHandsSuccess)},
    problems=("conversation_not_found", "no_secret_key", "secrets_full", "not_durable"),
)
async def set_secrets(backend: Backend, conversation: ConversationUuid, wanted: NewSecrets) -> Response:
    """Encrypted as they are kept, and masked in what tools return. Nobody is told what they are."""
    id = operations.conversation_of(backend, conversation)
    await operations.set_secrets(backend, id, wanted.secrets, pointer="/secrets")
    return done()
