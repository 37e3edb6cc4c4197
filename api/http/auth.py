"""API keys, if there are any: ``Authorization: Bearer …`` on all requests but probes and the paths that are named
here."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from starlette.types import Scope

from palaver.config.settings import ApiKey, Settings
from palaver.operations import Caller, LiveKey, LiveToken, StoredKeys
from palaver.operations.live_keys import TokenReader
from palaver.secrets.api_keys import PREFIX

from .problems import Problem

METRICS: Final = "/metrics"
"""The one route that a key of ``PALAVER_METRICS_KEYS`` opens."""
QUEUES: Final = "/v1/queues"
"""The one route that a key of ``PALAVER_QUEUES_KEYS`` opens."""
DOCUMENTS: Final = frozenset(
    {"/", "/docs", "/docs/start.js", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/openapi.json"}
)
"""Paths that are open with ``PALAVER_OPEN_DOCS``: a browser that follows a link sends no key."""
_NOTHING: Final = nullcontext()
_STORED: Final = PREFIX.encode()
_TOKEN: Final = b"eyJ"
"""The beginning of every token: a header is an object of JSON, in base64."""


class Keys:
    """The keys that are let in, kept as digests: comparing takes the same time for any key of any length."""

    def __init__(self, keys: Iterable[ApiKey], *, wanted: bool = False) -> None:
        self._known = tuple((_digest(key.secret.get_secret_value().encode()), key.name) for key in keys)
        self._wanted = wanted

    @property
    def none(self) -> bool:
        """True if there are no keys, and none is wanted."""
        return not self._known and not self._wanted

    def caller(self, key: bytes | None) -> Caller:
        """Return the caller with this key; every caller is trusted where no key is wanted."""
        if self.none:
            return Caller(trusted=True)
        digest = _digest(key or b"")
        names = [name for known, name in self._known if hmac.compare_digest(digest, known)]
        return Caller(True, names[0]) if names and key else Caller(trusted=False)

    def __contains__(self, key: bytes) -> bool:
        """Tell whether it is one of these keys."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known, _ in self._known) > 0


class CallerKeys:
    """All keys that open everything that they have scopes for: those of ``PALAVER_API_KEYS``, those of the store, and
    tokens."""

    def __init__(self, settings: Settings, stored: StoredKeys, foreign: TokenReader | None = None) -> None:
        self.listed: Final = Keys(settings.api_keys, wanted=settings.keyed)
        self.stored: Final = stored
        self.foreign: Final = foreign
        """The tokens of an issuer, if the settings name one."""

    def stores(self, key: bytes | None) -> bool:
        """Tell whether a key is none of the listed ones and looks like one of the store, or a token: without a
        look."""
        if key is None:
            return False
        # Where no key is wanted, a proxy before the API may pass on tokens of its own.
        looks = key.startswith(_STORED) or (key.startswith(_TOKEN) and not self.listed.none)
        return looks and key not in self.listed

    async def caller(self, key: bytes | None, *, ask_issuer: bool = True) -> tuple[Caller, LiveKey | LiveToken | None]:
        """Return the caller with this key, and the key if the store or an issuer has it. Unless the issuer may be asked
        for what it has signed with, no token of it exists.

        Raises:
            Refused: a token of the issuer is for no tenant here.
            StoreUnavailable, IssuerUnavailable: it is not known; so may be what Redis raises.
        """
        if key is None or not self.stores(key):
            return self.listed.caller(key), None
        live: LiveKey | LiveToken | None
        if key.startswith(_STORED):
            live = await self.stored.open(key)
        else:
            live = await self.stored.open_token(key)
            if live is None and self.foreign is not None and ask_issuer:
                live = await self.foreign.open(key)
        return (Caller(trusted=False) if live is None else live.caller()), live

    def held(self, live: LiveKey | LiveToken | None) -> AbstractContextManager[None]:
        """Return the context to serve a caller in: if the store has the key, what takes long ends with it."""
        return _NOTHING if live is None else self.stored.held(live)


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
