"""Runs that belong to a transaction of the project's database, and tokens for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack
from uuid import uuid4

from django.db import transaction

from palaver.client import AsyncPalaver
from palaver.client.options import SubmitOptions, check
from palaver.schemas.models import Message, Run
from palaver.schemas.tokens import Token, TokenScope

from .asking import ask

_OF_PAGES: tuple[TokenScope, ...] = ("runs:submit", "runs:read", "runs:act", "actions:approve")


@dataclass(slots=True)
class RunOnCommit:
    """A run that is submitted once the transaction is committed."""

    conversation_id: str
    """The conversation. Before there is a run, a new one has a UUID, which may be kept in the same transaction:
    `submit`, `token_for` and `AsyncPalaver.create_conversation` find the conversation by it."""
    idempotency_key: str
    """The key of the submission: `submit` with the same conversation, key and input again makes no second run."""
    run: Run | None = None
    """The run; None until it is submitted, and for ever if the transaction is rolled back."""


def submit(user: Any, input: str | Sequence[Message | Mapping[str, Any]], **options: Unpack[SubmitOptions]) -> Run:
    """Submit a run for a user, now; the arguments are those of `Palaver.submit`. A ``conversation_id`` that is a UUID
    begins the conversation, if there is none of it yet.

    Raises:
        PermissionDenied, SynchronousOnlyOperation, ConfigurationError: as `ask`.
        APIError, ConnectionFailed, ValueError: as `Palaver.submit`.
    """

    async def submitted(palaver: AsyncPalaver) -> Run:
        if (wanted := options.get("conversation_id")) is not None:
            options["conversation_id"] = await _id_of(palaver, wanted)
        return await palaver.submit(input, **options)

    check(options, SubmitOptions)
    run: Run = ask(user, submitted)
    return run


def submit_on_commit(
    user: Any,
    input: str | Sequence[Message | Mapping[str, Any]],
    *,
    using: str | None = None,
    robust: bool = False,
    **options: Unpack[SubmitOptions],
) -> RunOnCommit:
    """Submit a run for a user once the transaction on the database ``using`` is committed; at once without one. If that
    or its savepoint is rolled back there is no run.

    What `submit` raises is raised where the transaction ends, with all of it committed; with ``robust`` it is logged by
    Django. If the process dies between the commit and the submission, there is no run.

    Raises:
        TypeError: an option that there is not.
    """
    check(options, SubmitOptions)
    submitted = RunOnCommit(
        options.get("conversation_id") or str(uuid4()), options.get("idempotency_key") or f"django:{uuid4()}"
    )
    options["conversation_id"], options["idempotency_key"] = submitted.conversation_id, submitted.idempotency_key

    def committed() -> None:
        submitted.run = submit(user, input, **options)
        submitted.conversation_id = submitted.run.conversation_id

    transaction.on_commit(committed, using=using, robust=robust)
    return submitted


def token_for(
    user: Any, conversation_id: str, *, scopes: Sequence[TokenScope] = _OF_PAGES, expires_in: int = 300
) -> Token:
    """Return a token for a page of this user: for one conversation, at `palaver api`, for ``expires_in`` seconds. A
    UUID begins the conversation, if there is none of it yet.

    Raises:
        NotFound: the user has no such conversation.
        PermissionDenied, SynchronousOnlyOperation, ConfigurationError: as `ask`.
        APIError, ConnectionFailed: it was not made; ``no_secret_key``, the server signs none.
    """

    async def made(palaver: AsyncPalaver) -> Token:
        conversation = await _id_of(palaver, conversation_id)
        return await palaver.create_token(conversation=conversation, scopes=scopes, expires_in=expires_in)

    token: Token = ask(user, made)
    return token


async def _id_of(palaver: AsyncPalaver, conversation: str) -> str:
    """The id of a conversation of which the project has that or a UUID."""
    return conversation if conversation.startswith("conv_") else (await palaver.create_conversation(id=conversation)).id
