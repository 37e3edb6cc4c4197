"""Tokens: made by the holder of a key, for a page that is to see one conversation for some minutes."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from palaver.errors import FieldError, Refused, safe_text
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.live_keys import key_of_request, token_ends_at
from palaver.operations.scopes import require_scope
from palaver.schemas.tokens import Token, TokenRequest
from palaver.secrets.sealing import KeyMissing
from palaver.secrets.tokens import sign
from palaver.vocabulary.ids import tenant_of


async def create_token(backend: Backend, request: TokenRequest, caller: Caller) -> Token:
    """Make a token, with no right that the caller's key has not.

    Raises:
        InsufficientScope: it could do what the caller's key cannot.
        Refused: it is for no conversation, for a subject that cannot be, or ``no_secret_key``.
        UnknownRun, UnknownConversation: there is no such run or conversation.
        NotDurable, StoreUnavailable: there is no key to sign it with, or not safely.
    """
    if (request.run is None) == (request.conversation is None):
        raise Refused.of_faults([FieldError("/conversation", "missing", "says what it is for, or run does")])
    if request.subject is not None:
        _check_subject(request.subject)
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
    if request.subject is not None:
        claims["user"] = request.subject
    return Token(
        token=sign(claims, key.id, key.secret),
        expires_at=datetime.fromtimestamp(claims["exp"], UTC),
        scopes=tuple(dict.fromkeys(request.scopes)),
        conversation=conversation_id,
        subject=request.subject,
    )


def _check_subject(subject: str) -> None:
    if token_ends_at.get() < math.inf:
        # Who has such a token may be a browser, and would choose who it is.
        raise _misfit("cannot be had by a caller whom an issuer or an application has named already: leave it out")
    if safe_text(subject) != subject:
        raise _misfit("looks like a key or another secret, and is shown: name the person by an id")


def _misfit(why: str) -> Refused:
    return Refused.of_faults([FieldError("/subject", "unfit", why)])


async def _conversation(backend: Backend, request: TokenRequest) -> str:
    if request.run is not None:
        return (await backend.run(request.run)).conversation_id
    conversation = await within_deadline(backend.store.runs.conversation(request.conversation or ""))
    return conversation.id
