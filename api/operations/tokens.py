"""Tokens: made by whoever has a key, for a page that is to see one conversation for some minutes."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from palaver.errors import FieldError, Refused
from palaver.schemas.tokens import Token, TokenRequest
from palaver.secrets.sealing import KeyMissing
from palaver.secrets.tokens import sign
from palaver.vocabulary.ids import tenant_of

from .backend import Backend, Caller, within_deadline
from .live_keys import key_of_request, token_ends_at
from .scopes import require_scope


async def create_token(backend: Backend, request: TokenRequest, caller: Caller) -> Token:
    """Make a token, with no right that the caller's key has not.

    Raises:
        InsufficientScope: it could do what the caller's key cannot.
        Refused: it is for no conversation, or ``no_secret_key``.
        UnknownRun, UnknownConversation: there is no such run or conversation.
        NotDurable, StoreUnavailable: there is no key to sign it with, or not safely.
    """
    if (request.run is None) == (request.conversation is None):
        raise Refused.of_faults([FieldError("/conversation", "missing", "says what it is for, or run does")])
    for scope in request.scopes:
        require_scope(caller, scope)
    conversation_id = await _conversation(backend, request)
    now = int((await within_deadline(backend.store.runs.now())).timestamp())
    # Who has a token of an issuer has none for longer by asking for another one.
    life = max(0.0, min(request.expires_in, token_ends_at.get() - time.monotonic()))
    try:
        key = await within_deadline(backend.store.signing_keys.current())
    except KeyMissing:
        raise Refused("no_secret_key", "Tokens are signed with keys that PALAVER_SECRET_KEY seals.") from None
    claims: dict[str, Any] = {
        "sub": caller.name or "",
        "iat": now,
        "exp": now + int(life),
        "jti": token_hex(8),
        "scope": " ".join(dict.fromkeys(request.scopes)),
        "tenant": tenant_of(conversation_id),
        "conversation": conversation_id,
        "agents": None if caller.agents is None else sorted(caller.agents),
    }
    made_with = key_of_request.get()
    if made_with is not None:
        claims["key"] = made_with
    return Token(
        token=sign(claims, key.id, key.secret),
        expires_at=datetime.fromtimestamp(claims["exp"], UTC),
        scopes=tuple(dict.fromkeys(request.scopes)),
        conversation=conversation_id,
    )


async def _conversation(backend: Backend, request: TokenRequest) -> str:
    if request.run is not None:
        return (await backend.run(request.run)).conversation_id
    conversation = await within_deadline(backend.store.runs.conversation(request.conversation or ""))
    return conversation.id
