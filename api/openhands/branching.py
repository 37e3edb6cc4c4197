"""Another way from an earlier event on: in a new conversation, or in the same one."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from palaver.errors import Fault, Refused
from palaver.schemas.conversation import Fork
from palaver.vocabulary.ids import uuid_of

from .. import operations
from ..operations import Backend, Caller
from .answers import ConversationInfo, OpenHandsSuccess, done, plain
from .dialect import OPENHANDS, ConversationUuid
from .fields import Known, refusing
from .looking import NAME, Seen, look
from .placed import find_event

_PLACE: Final = "/openhands/api/conversations/{conversation}"


class ForkConversation(Known):
    """What a fork is to be."""

    id: UUID | None = None
    title: str | None = None
    tags: dict[str, str] | None = Field(default=None)
    from_event_id: str | None = Field(default=None, max_length=100)


class Navigation(Known):
    """Where to go back to."""

    event_id: str | None = Field(default=None, max_length=100)


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/fork",
    tag="openhands",
    summary="Fork a conversation",
    answers={201: ("The new one.", ConversationInfo)},
    problems=(
        "conversation_not_found",
        "unknown_position",
        "no_secret_key",
        "secrets_broken",
        "store_nearly_full",
        "not_durable",
    ),
)
async def fork_conversation(
    backend: Backend, caller: Caller, conversation: ConversationUuid, wanted: ForkConversation
) -> Response:
    """A conversation that begins with what this one has, up to an event if one is named."""
    seen = await look(backend, conversation)
    given: dict[str, Any] = {
        "id": wanted.id and str(wanted.id),
        "title": wanted.title,
        "metadata": wanted.tags,
        "through": await _position(backend, seen, wanted.from_event_id, "/from_event_id"),
    }
    with refusing(named={"metadata": "tags"}):
        fork = Fork(**{name: value for name, value in given.items() if value is not None})
    kept = {NAME: seen.kept.changed(paused_after=None, deleted_with=None).text()}
    made, _ = await operations.fork(backend, seen.id, fork, caller, kept=kept)
    return plain((await look(backend, uuid_of(made.id))).info(), 201)


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/navigate",
    tag="openhands",
    summary="Go back to an event",
    answers={200: ("The model is told nothing any more of what came after it.", OpenHandsSuccess)},
    problems=("conversation_not_found", "conversation_busy", "unknown_position", "not_durable"),
)
async def navigate(backend: Backend, caller: Caller, conversation: ConversationUuid, wanted: Navigation) -> Response:
    """Events stay, and what is said next goes on from there. Without an event: from the beginning."""
    seen = await look(backend, conversation)
    position = await _position(backend, seen, wanted.event_id, "/event_id")
    await operations.withdraw(backend, seen.id, position or 0, caller)
    return done()


async def _position(backend: Backend, seen: Seen, name: str | None, pointer: str) -> int | None:
    """The position of the entry that an event is of."""
    if name is None:
        return None
    found = await find_event(backend, seen, name)
    if found is None:
        raise Refused.of_faults([Fault(pointer, "unknown_position", "is no event of this conversation")])
    return found.position
