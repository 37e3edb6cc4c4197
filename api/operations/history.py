"""What becomes of a conversation's log without a run: the user's words are added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from palaver.errors import Fault
from palaver.failpoints import failpoint
from palaver.models import Message
from palaver.store.contracts.logs import Appended

from .admission import admit_messages, refuse
from .backend import Backend, Caller, promised, within_deadline
from .history_rules import input_faults


async def append(
    backend: Backend, conversation_id: str, given: str | Sequence[Message], caller: Caller, *, key: str | None = None
) -> Appended:
    """Add the user's words to a conversation: to its log, or into the run that is active. With the same ``key`` again
    nothing more happens.

    Raises:
        Refused: everything that is wrong with them.
        UnknownConversation, StateConflict: there is no such conversation, or no room in it.
        IdempotencyMismatch, NoRoom, NotDurable, StoreUnavailable: they were not taken, or not safely.
    """
    refuse(chain(input_faults(given), _role_faults(given)))
    await within_deadline(backend.store.capacity.admit())
    if not isinstance(given, str) and any(not isinstance(message.content, str) for message in given):
        agent = (await within_deadline(backend.store.runs.conversation(conversation_id))).agent
        admit_messages(given, agent, backend)
    messages = (Message(role="user", content=given),) if isinstance(given, str) else given
    append = backend.store.history.append(conversation_id, messages, idempotency_key=key, by=caller.name)
    appended, unsafe = await promised(append)
    failpoint("messages.appended")
    if unsafe:
        raise unsafe
    return appended


def _role_faults(given: str | Sequence[Message]) -> Iterator[Fault]:
    for index, message in enumerate(given if not isinstance(given, str) else ()):
        if message.role != "user":
            yield Fault(f"/input/{index}/role", "invalid_history", "must be user: these are words of the user's")
