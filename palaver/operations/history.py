"""Changes of a log without a run: append the user's messages, withdraw its end, fork it."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.errors import FieldError, Refused, StateConflict
from palaver.operations.admission import admit_conversation, admit_messages, check_heard
from palaver.operations.backend import Backend, Caller, durable_reply, unless_changed, within_deadline
from palaver.operations.conversations import check_dialect_texts, chosen_id
from palaver.operations.scopes import refuse_held
from palaver.operations.secrets import carrying_secrets
from palaver.schemas.conversation import Conversation, Fork
from palaver.schemas.models import Message
from palaver.store.conversations.conversations import DialectTexts
from palaver.store.scripting.contracts.logs import Appended
from palaver.vocabulary.ids import is_id, shard_of


async def append(
    backend: Backend,
    conversation_id: str,
    input: str | Sequence[Message],
    caller: Caller,
    *,
    key: str | None = None,
    turns: bool = False,
) -> Appended:
    """Append the user's messages to a conversation: to its log, or into the active run. With ``turns`` they may be
    others, too, in whole turns, where no run is active. With the same ``key`` again nothing more happens.

    Raises:
        Refused: everything that is wrong with them.
        UnknownConversation, StateConflict: there is no such conversation, no room in it, or a run that is active.
        IdempotencyMismatch, NoRoom, NotDurable, StoreUnavailable: they were not taken, or not safely.
    """
    await admit_messages(conversation_id, input, backend, caller, turns=turns)
    await within_deadline(backend.store.capacity.admit())
    messages = (Message(role="user", content=input),) if isinstance(input, str) else input
    append = backend.store.history.append(conversation_id, messages, idempotency_key=key, by=caller.identity)
    appended, unsafe = await durable_reply(append)
    if unsafe:
        raise unsafe
    return appended


async def withdraw(
    backend: Backend, conversation_id: str, after: int, caller: Caller, *, key: str | None = None
) -> tuple[Conversation, bool]:
    """Go back to a position: models are not sent any more what the log has behind it. Return the conversation after
    that, and true if an earlier request with the same ``key`` had the effect.

    Raises:
        Refused: the log cannot be cut at that position, or the caller's key is for other agents.
        UnknownConversation, StateConflict: there is no such conversation, or a run of it is active.
        IdempotencyMismatch, NotDurable, StoreUnavailable: it was not done, or not safely.
    """
    await check_heard(conversation_id, backend, caller)
    withdrawing = backend.store.history.withdraw(conversation_id, after, idempotency_key=key, by=caller.identity)
    try:
        withdrawn, unsafe = await durable_reply(withdrawing)
    except StateConflict as conflict:
        raise _misplaced(conflict, "/after") from None
    if unsafe:
        raise unsafe
    return await within_deadline(backend.store.runs.conversation(conversation_id)), withdrawn.replayed


async def fork(
    backend: Backend,
    conversation_id: str,
    body: Fork,
    caller: Caller,
    *,
    dialect_texts: DialectTexts | None = None,
    key: str | None = None,
) -> tuple[Conversation, bool]:
    """Begin a new conversation with the log of this one; or return, with true, the one that an earlier request made
    with the same ``key`` or for the same id. ``dialect_texts`` are as with `create_conversation`.

    Raises:
        InsufficientScope: the caller's key is held to one conversation.
        Refused: everything that is wrong with the agent, the id, the position or the texts.
        UnknownConversation, StateConflict: there is no such conversation, or another one has that id.
        IdempotencyMismatch, NoRoom, NotDurable, StoreUnavailable: it was not made, or not safely.
    """
    refuse_held(caller)
    target = None if body.id is None else chosen_id(backend, body.id, beside=conversation_id)
    if target is not None and is_id("conv", conversation_id) and shard_of(target) != shard_of(conversation_id):
        why = "falls on another shard than the conversation that is forked: leave it out"
        raise Refused.at("/id", why)
    check_dialect_texts(dialect_texts)
    await check_heard(conversation_id, backend, caller)
    admitted = await admit_conversation(body, backend, caller)
    if target is not None:
        await within_deadline(backend.store.memories.bring_back(target))

    async def fork_admitted() -> tuple[Conversation, bool]:
        forking = backend.store.history.fork(
            conversation_id,
            admitted.body,
            target,
            received=body,
            dialect_texts=dialect_texts,
            idempotency_key=key,
            by=caller.identity,
            agent_by=admitted.agent_by,
        )
        return await within_deadline(forking)

    try:
        with carrying_secrets():
            return await unless_changed(fork_admitted)
    except StateConflict as conflict:
        raise _misplaced(conflict, "/through") from None


def _misplaced(conflict: StateConflict, pointer: str) -> StateConflict | Refused:
    if conflict.code != "unknown_position":
        return conflict
    return Refused.of_faults([FieldError(pointer, "unknown_position", str(conflict))])
