"""The bounds of a key: its scopes, and the one conversation that it may be held to."""

from __future__ import annotations

from palaver.errors import Refused, UnknownConversation, UnknownRun
from palaver.operations.backend import Backend, Caller
from palaver.vocabulary.scopes import Scope


class InsufficientScope(Refused):
    """The key of the caller is not for this.

    ``scopes`` are those of which it would need one; empty if no scope would do.
    """

    def __init__(self, scopes: tuple[Scope, ...], detail: str) -> None:
        super().__init__("insufficient_scope", detail)
        self.scopes = scopes


def require_scope(caller: Caller, *scopes: Scope) -> None:
    """See that the caller has one of these scopes.

    Raises:
        InsufficientScope: the key has none of them.
    """
    if caller.scopes is not None and caller.scopes.isdisjoint(scopes):
        raise InsufficientScope(scopes, f"The key needs the scope {' or '.join(scopes)}.")


def refuse_held(caller: Caller) -> None:
    """See that the caller may use any conversation.

    Raises:
        InsufficientScope: the key is held to one.
    """
    if caller.conversation is not None:
        raise InsufficientScope((), "The key is held to one conversation, and this goes beyond it.")


async def keep_to_conversation(backend: Backend, caller: Caller, conversation_id: str) -> None:
    """See that a caller who is held to one conversation means that one. Another one is like one that is not there.

    Raises:
        UnknownConversation: it is another one.
    """
    if conversation_id != caller.conversation:
        raise UnknownConversation(conversation_id)


async def keep_to_run(backend: Backend, caller: Caller, run_id: str) -> None:
    """See that a caller who is held to one conversation means a run of it.

    Raises:
        UnknownRun: there is none of this id there.
    """
    if (await backend.run(run_id)).conversation_id != caller.conversation:
        raise UnknownRun(run_id)
