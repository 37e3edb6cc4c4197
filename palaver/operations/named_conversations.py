"""Conversations that clients of a dialect know by names of their own, such as the id of a chat or a thread.

A name leads to a conversation without a table of names: it is that conversation's id, its UUID, or a text from which
its number follows. So a thousand requests at once with a new name make one conversation, and any process finds it.
"""

from __future__ import annotations

import hashlib
from uuid import UUID

from palaver.operations.backend import Backend, Caller
from palaver.operations.conversations import conversation_of, create_conversation
from palaver.operations.scopes import keep_to_conversation
from palaver.operations.submitting import Taken, submit
from palaver.schemas.conversation import NewConversation
from palaver.schemas.models import Submission
from palaver.vocabulary.ids import is_id


def conversation_named(backend: Backend, dialect: str, name: str) -> str:
    """Return the id of the conversation that clients of a dialect know by ``name``, whether there is one or not.

    An id of a conversation is its own name, and so is a UUID. Any other text names a conversation of the caller's
    tenant that this dialect alone has by that name.
    """
    if is_id("conv", name):
        return name
    try:
        number = UUID(name)
    except ValueError:
        number = UUID(bytes=hashlib.sha256(f"{dialect}\0{name}".encode()).digest()[:16])
    return conversation_of(backend, number)


async def keep_to_named(backend: Backend, caller: Caller, conversation_id: str) -> None:
    """See that a caller who is held to one conversation means that one.

    Raises:
        UnknownConversation: it is another one.
    """
    if caller.conversation is not None:
        await keep_to_conversation(backend, caller, conversation_id)


async def submit_to_named(
    backend: Backend, conversation_id: str, submission: Submission, caller: Caller, *, key: str
) -> Taken:
    """Take a run on in a conversation that clients have named; the first run begins it. With the same ``key`` again
    nothing more happens.

    Raises:
        UnknownConversation: the caller is held to another one.
        Refused: everything that is wrong with it, or with the id.
        StateConflict: the state of the conversation does not allow it.
        IdempotencyMismatch, NoRoom, NotDurable, TimePassed, StoreUnavailable: it was not taken on, or not safely.
    """
    await keep_to_named(backend, caller, conversation_id)
    submission = submission.model_copy(update={"conversation_id": conversation_id})
    begins = caller.conversation is None
    if begins and submission.on_conflict == "steer" and caller.agents is not None:
        # Which agent hears it is looked at before, and so the conversation has to be there.
        await create_conversation(backend, NewConversation(id=conversation_id), caller)
    return await submit(backend, submission, caller, key=key, begins=begins)
