"""API keys, if there are any: ``Authorization: Bearer …`` on all requests but probes and the paths that are named
here."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Final

from starlette.types import Scope

from palaver.config.settings import ApiKey

from .operations import Caller
from .problems import Problem

METRICS: Final = "/metrics"
"""The one route that a key of ``PALAVER_METRICS_KEYS`` opens."""
QUEUES: Final = "/v1/queues"
"""The one route that a key of ``PALAVER_QUEUES_KEYS`` opens."""
DOCUMENTS: Final = frozenset(
    {"/", "/docs", "/docs/start.js", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/openapi.json"}
)
"""Paths that are open with ``PALAVER_OPEN_DOCS``: a browser that follows a link sends no key."""


class Keys:
    """The keys that are let in, kept as digests: comparing takes the same time for any key of any length."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._known = tuple((_digest(key.secret.get_secret_value().encode()), key.name) for key in keys)

    @property
    def none(self) -> bool:
        """True if there are no keys."""
        return not self._known

    def caller(self, key: bytes | None) -> Caller:
        """Return the caller with this key; every caller is trusted where there are no keys."""
        if not self._known:
            return Caller(trusted=True)
        digest = _digest(key or b"")
        names = [name for known, name in self._known if hmac.compare_digest(digest, known)]
        return Caller(True, names[0]) if names and key else Caller(trusted=False)


def bearer(scope: Scope, headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the key of ``Authorization: Bearer``."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else None


def unauthenticated() -> Problem:
    """Return the problem of a caller without a valid key."""
    return Problem(
        "unauthenticated",
        "Send Authorization: Bearer with an API key.",
        headers={"WWW-Authenticate": 'Bearer realm="palaver"'},
    )


def routed_path(scope: Scope) -> str:
    """Return the path that routes are compared with: without the root path of the server, or of an application around
    this one."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    below = path.removeprefix(root)
    return below if root and path != below and below[:1] in {"", "/"} else path


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
