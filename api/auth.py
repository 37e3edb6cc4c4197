"""API keys: ``Authorization: Bearer …`` on every /v1 route if ``PALAVER_API_KEYS`` is set; else open."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from pydantic import SecretStr

from api.problems import Problem


class Keys:
    """The keys that are let in, kept as digests: comparing takes the same time for any key of any length."""

    def __init__(self, keys: Iterable[SecretStr]) -> None:
        self._digests = tuple(_digest(key.get_secret_value().encode()) for key in keys)

    def check(self, authorization: bytes | None) -> None:
        """Let the bearer of a key pass; let everybody pass when there are no keys.

        Raises:
            Problem: ``unauthenticated``.
        """
        if not self._digests:
            return
        scheme, _, key = (authorization or b"").partition(b" ")
        given = _digest(key.strip())
        found = [hmac.compare_digest(given, digest) for digest in self._digests]
        if scheme.lower() != b"bearer" or not any(found):
            raise Problem(
                "unauthenticated",
                "Send Authorization: Bearer with an API key.",
                headers={"WWW-Authenticate": 'Bearer realm="palaver"'},
            )


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
