"""Requests that are taken once: a client that repeats one, with its idempotency key, gets what came of the first."""

from __future__ import annotations

import hashlib
from secrets import token_hex

from palaver.late import dataclass
from palaver.store.redis import keys
from palaver.store.redis.reach import reach
from palaver.vocabulary.ids import shard_of


def sha256(text: str) -> str:
    """Hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's key as the store has it; both empty when there is none."""

    digest: str = ""
    fingerprint: str = ""
    """The fingerprint of the request that it is used with."""


def idempotency(key: str | None, request: str, by: str | None) -> IdempotencyKey:
    """``key`` used with ``request`` by the bearers of API keys of that name, of the tenant that is asked for: others'
    keys are other keys."""
    if key is None:
        return IdempotencyKey()
    tenant, named = reach().tenant, key if by is None else f"{by}\n{key}"
    return IdempotencyKey(sha256(f"{tenant}\0{named}" if tenant else named), sha256(request))


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """The record of a request that is taken once: of its idempotency key, or else of this very try of it."""

    record: str
    fingerprint: str | None
    request: str

    @classmethod
    def of(cls, key: str | None, any_id: str, what: str, by: str | None) -> IdempotencyRecord:
        """Return the record for a request that asks for ``what`` of a run or in a conversation."""
        request, hashed = token_hex(16), idempotency(key, f"{any_id} {what}", by)
        record = keys.idempotency(shard_of(any_id), hashed.digest or sha256(request))
        return cls(record, hashed.fingerprint or None, request)
