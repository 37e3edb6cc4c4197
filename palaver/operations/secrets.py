"""Secrets of a conversation: set, removed, listed by name. Their values are never shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pydantic import SecretStr

from palaver.errors import Refused, StateConflict
from palaver.operations.admission import admit_secrets, check_heard
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.fields import revealed
from palaver.secrets.sealing import KeyMissing, SealBroken


async def set_secrets(
    backend: Backend,
    conversation_id: str,
    secrets: Mapping[str, SecretStr | None],
    caller: Caller,
    *,
    pointer: str = "",
) -> tuple[str, ...]:
    """Set secrets of a conversation by name, and remove those that are None. Return the names of all that it has then.
    Tools get the new values from their next call on.

    ``pointer`` is where the secrets stand in the request.

    Raises:
        Refused: ``no_secret_key``, or the caller's key is for other agents.
        UnknownConversation, StateConflict: there is no such conversation, or not so much room in it.
        StoreUnavailable: they may be set or not.
    """
    admit_secrets(secrets, pointer, backend)
    await check_heard(conversation_id, backend, caller)
    if secrets:
        await within_deadline(backend.store.vault.keep(conversation_id, revealed(secrets), by=caller.identity))
    return await secret_names(backend, conversation_id)


async def secret_names(backend: Backend, conversation_id: str) -> tuple[str, ...]:
    """Return the names of a conversation's secrets.

    Raises:
        UnknownConversation: there is no such conversation (any more).
    """
    return await within_deadline(backend.store.vault.names(conversation_id))


@contextmanager
def carrying_secrets() -> Iterator[None]:
    """Translate errors about secrets around a fork, which has the secrets of the conversation that it is made of.

    Raises:
        Refused: ``no_secret_key``: this API cannot open them.
        StateConflict: ``secrets_broken``: they cannot be opened.
    """
    try:
        yield
    except KeyMissing:
        why = (
            "The conversation has secrets, and PALAVER_SECRET_KEY of the API has not the key that they are sealed with."
        )
        raise Refused("no_secret_key", why) from None
    except SealBroken:
        why = "a secret of the conversation was changed in the store, and cannot be opened: set it again, or remove it"
        raise StateConflict("secrets_broken", None, why) from None
