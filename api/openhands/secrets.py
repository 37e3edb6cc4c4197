"""Secrets of a conversation, which tools are given by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import SecretStr
from starlette.responses import Response

from palaver.errors import Fault, Refused
from palaver.fields import AtMost, SecretName, SecretText

from .. import operations
from ..operations import Backend
from .answers import OpenHandsSuccess, done
from .dialect import OPENHANDS, ConversationUuid
from .fields import Known
from .looking import number_of

_LOOKED_UP: Final = "must be the value itself: nothing is looked up from here"


class StaticSecret(Known):
    """A secret that is here."""

    kind: Literal["StaticSecret"] = "StaticSecret"
    value: SecretText | None = None


class LookupSecret(Known):
    """One that the server would have to fetch."""

    kind: Literal["LookupSecret"]


GivenSecret = SecretText | LookupSecret | StaticSecret


class NewSecrets(Known):
    """Secrets by name."""

    secrets: Annotated[dict[SecretName, GivenSecret], AtMost("secrets")]


def values_of(secrets: Mapping[str, GivenSecret]) -> dict[str, SecretStr | None]:
    """The values by name; None takes one away.

    Raises:
        Refused: one would have to be fetched.
    """
    found: dict[str, SecretStr | None] = {}
    for name, given in secrets.items():
        if isinstance(given, LookupSecret):
            raise Refused.of_faults([Fault(f"/secrets/{name}", "unsupported_option", _LOOKED_UP)])
        found[name] = given.value if isinstance(given, StaticSecret) else given
    return found


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
    id = operations.conversation_of(backend, number_of(conversation))
    await operations.set_secrets(backend, id, values_of(wanted.secrets), pointer="/secrets")
    return done()
