"""API keys: ``Authorization: Bearer …`` on everything but probes and what is named here, if there are any."""

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
"""Open with ``PALAVER_OPEN_DOCS``: a browser that follows a link sends no key."""


class Keys:
    """The keys that are let in, kept as digests: comparing takes the same time for any key of any length."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._known = tuple((_digest(key.secret.get_secret_value().encode()), key.name) for key in keys)

    @property
    def none(self) -> bool:
        """Whether there are none."""
        return not self._known

    def caller(self, key: bytes | None) -> Caller:
        """Who bears this key; everybody is trusted where there are no keys."""
        if not self._known:
            return Caller(trusted=True)
        given = _digest(key or b"")
        found = [name for digest, name in self._known if hmac.compare_digest(given, digest)]
        return Caller(True, found[0]) if found and key else Caller(trusted=False)


def bearer(scope: Scope, headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key of ``Authorization: Bearer``."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else None


def unauthenticated() -> Problem:
    """Nobody that we know."""
    return Problem(
        "unauthenticated",
        "Send Authorization: Bearer with an API key.",
        headers={"WWW-Authenticate": 'Bearer realm="palaver"'},
    )


def routed_path(scope: Scope) -> str:
    """The path that routes are compared with: without what the server, or an application around this one, is under."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    below = path.removeprefix(root)
    return below if root and path != below and below[:1] in {"", "/"} else path


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
