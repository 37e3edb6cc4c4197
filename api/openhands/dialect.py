"""The dialect that the routes here are added to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import parse_qs
from uuid import UUID

from starlette.requests import Request
from starlette.types import Scope

from palaver.errors import Fault, Refused

from .. import operations
from ..auth import bearer
from ..dialects import Dialect
from ..headers import JSON
from ..openapi import ErrorFormat
from ..queries import AnyQuery
from ..requests import backend_of
from ..signatures import InPath
from .problems import SCHEMA, respond

PREFIX: Final = "/openhands"
_MOST_FIELDS: Final = 16


def key_of(scope: Scope, headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key of ``X-Session-API-Key``, of ``Authorization``, or of the query of a socket, as older clients send it."""
    key = headers.get(b"x-session-api-key") or bearer(scope, headers)
    if key is None and scope["type"] == "websocket":
        return _in_query(scope["query_string"])
    return key


def _in_query(query: bytes) -> bytes | None:
    try:
        found = parse_qs(query, max_num_fields=_MOST_FIELDS).get(b"session_api_key", [])
    except ValueError:
        # More fields than any client sends.
        return None
    return found[0] if found else None


async def _conversation_first(request: Request, given: Mapping[str, Any]) -> None:
    """OpenHands looks for the conversation before it reads query and body.

    Raises:
        UnknownConversation: there is none.
    """
    if "conversation" in given:
        backend = backend_of(request)
        await operations.read_conversation(backend, operations.conversation_of(backend, given["conversation"]))


OPENHANDS: Final = Dialect(
    "openhands",
    PREFIX,
    respond,
    ErrorFormat(JSON, "OpenHandsError", SCHEMA),
    key_of,
    query=AnyQuery,
    unfit=_conversation_first,
    about="The same conversations for OpenHands' clients.",
)


def number_of(text: str) -> UUID:
    """The conversation that a UUID names.

    Raises:
        Refused: it is none.
    """
    try:
        return UUID(text)
    except ValueError:
        raise Refused(
            "validation_error", faults=[Fault("/conversation_id", "uuid_parsing", "must be a UUID")]
        ) from None


ConversationUuid = Annotated[UUID, InPath("The conversation, a UUID.", number_of, "uuid")]
EventUuid = Annotated[str, InPath("The event's id.")]
