"""API keys: ``Authorization: Bearer …`` on every /v1 route if ``PALAVER_API_KEYS`` is set; else open."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from api.problems import Problem
from palaver.settings import ApiKey


class Keys:
    """The keys that are let in, kept as digests: comparing takes the same time for any key of any length."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._known = tuple((_digest(key.secret.get_secret_value().encode()), key.name) for key in keys)

    def check(self, authorization: bytes | None) -> str | None:
        """Let the bearer of a key pass; let everybody pass when there are no keys. The key's name, if it has one.

        Raises:
            Problem: ``unauthenticated``.
        """
        if not self._known:
            return None
        scheme, _, key = (authorization or b"").partition(b" ")
        given = _digest(key.strip())
        found = [name for digest, name in self._known if hmac.compare_digest(given, digest)]
        if scheme.lower() != b"bearer" or not found:
            raise Problem(
                "unauthenticated",
                "Send Authorization: Bearer with an API key.",
                headers={"WWW-Authenticate": 'Bearer realm="palaver"'},
            )
        return found[0]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
