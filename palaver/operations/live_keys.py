"""Keys and tokens that are valid, as far as this process knows, and their ends."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

from palaver.errors import ErrorClass, PalaverError, Refused, classify
from palaver.operations.backend import Caller
from palaver.store.access.api_keys import KeyRecord
from palaver.vocabulary.scopes import SCOPES

key_ended: Final[ContextVar[asyncio.Event | None]] = ContextVar("palaver-key-ended", default=None)
"""Set once the key of the present request is revoked or has expired; None for a caller without such a key."""
key_of_request: Final[ContextVar[str | None]] = ContextVar("palaver-key", default=None)
"""The id of the key of the present request, if the store has it."""
token_ends_at: Final[ContextVar[float]] = ContextVar("palaver-token-ends-at", default=math.inf)
"""The time at which the token of the present request expires, by the monotonic clock; never for one without."""


class InvalidKey(Refused):
    """A key of the store is not valid: it never was, was revoked, or has expired, perhaps while its bearer waited."""

    def __init__(self) -> None:
        super().__init__("invalid_token", "It was revoked, has expired, or never was a key.")


class IssuerUnavailable(PalaverError):
    """The issuer of tokens does not answer, so that it is unknown whether one is good."""


def is_away(error: Exception) -> bool:
    """Tell whether an error says that the store, or the issuer of tokens, does not answer."""
    return isinstance(error, IssuerUnavailable) or classify(error).error_class is ErrorClass.STORAGE


class LiveKey:
    """A key of the store that is valid, as far as this process knows."""

    def __init__(self, record: KeyRecord, ends_at: float) -> None:
        self.record = record
        self.ends_at = ends_at
        """The time at which it expires, by the monotonic clock."""
        self.ended: Final = asyncio.Event()
        self.tokens: Final[set[asyncio.Event]] = set()
        """The ends of what is served to tokens that were made with it."""
        self.holders = 0
        """Requests, streams and sockets of its bearer that are under way."""
        self.used_at = time.monotonic()
        self.noted = 0
        """The last minute of use that was noted."""

    @property
    def valid(self) -> bool:
        """True until it is revoked or expires."""
        return not self.ended.is_set() and time.monotonic() < self.ends_at

    def end(self) -> None:
        """Do not go on with it."""
        for ended in (self.ended, *self.tokens):
            ended.set()

    def caller(self) -> Caller:
        """Return its bearer, who asks now."""
        grant = self.record.grant
        return Caller(
            trusted=True,
            name=grant.name,
            tenant=grant.tenant,
            scopes=grant.scopes,
            agents=grant.agents,
            conversation=grant.conversation,
            operator=grant.operator,
        )


class LiveToken:
    """A token that is valid, as far as this process knows."""

    def __init__(self, caller: Caller, ends_at: float, parent: LiveKey | None) -> None:
        self._caller = caller
        self.ends_at = ends_at
        """The time at which it expires, by the monotonic clock."""
        self.parent = parent
        """The key that made it; None for one that the store does not have, and for a token of an issuer."""
        self.ended: Final = asyncio.Event()

    def caller(self) -> Caller:
        """Return its bearer, who asks now."""
        return self._caller


class TokenReader(Protocol):
    """Tokens that others than Palaver make."""

    async def open(self, token: bytes) -> LiveToken | None:
        """Return the token that this is; None if it is none, or not valid.

        Raises:
            Refused: ``tenant_not_allowed``, it is valid and of no tenant here.
            IssuerUnavailable: that is not known.
            StoreUnavailable: whose it is is not known; so may be what Redis raises.
        """
        ...

    async def close(self) -> None:
        """Read no more."""
        ...


@contextmanager
def while_valid(ended: asyncio.Event, key_id: str | None = None, ends_at: float = math.inf) -> Iterator[None]:
    """Serve a request whose key, of this id if the store has it, is valid until ``ended`` is set. A token expires
    at ``ends_at``."""
    before = key_ended.set(ended), key_of_request.set(key_id), token_ends_at.set(ends_at)
    try:
        yield
    finally:
        key_ended.reset(before[0])
        key_of_request.reset(before[1])
        token_ends_at.reset(before[2])


def bearer_of(claims: Mapping[str, Any], parent: LiveKey | None) -> Caller:
    """Return the bearer of a token. It has no right that the key which made it has not."""
    scopes = frozenset(scope for scope in SCOPES if scope in claims["scope"].split())
    agents = None if claims.get("agents") is None else frozenset(claims["agents"])
    if parent is not None:
        scopes &= parent.record.grant.scopes
        agents = parent.record.grant.agents
    name, subject = claims["sub"], claims.get("user")
    return Caller(
        trusted=True,
        name=f"{name}/{subject}" if subject else name or None,
        tenant=claims["tenant"],
        scopes=scopes,
        agents=agents,
        conversation=claims["conversation"],
    )
