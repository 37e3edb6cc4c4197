"""Pages of other origins that may read answers: those that a setting names, exactly as they are.

They bring a key or a token in a header, and whatever other headers their client has: a library for pages adds some of
its own with each version. There are no cookies, so nothing is allowed to come with credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from palaver.config.settings import Settings

_METHODS: Final = "GET, POST, PUT, PATCH, DELETE"
_HEADERS: Final = re.compile(
    rb"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}(?:[ \t]*,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}){0,99}"
)
"""The names of headers that a page would send, as a browser lists them."""
_EXPOSED: Final = (
    "ETag, Idempotency-Replayed, Link, Location, Palaver-Incomplete, Palaver-Steered, "
    "Preference-Applied, Retry-After, WWW-Authenticate, X-Request-Id, X-Should-Retry, X-Vercel-AI-UI-Message-Stream"
)
_LASTS: Final = "600"
"""Seconds for which a browser need not ask again whether it may ask."""


class Cors:
    """The origins whose pages are answered."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(origin.encode() for origin in settings.cors_origins)

    def headers(self, asked: Mapping[bytes, bytes]) -> Sequence[tuple[bytes, bytes]]:
        """Return what is added to the headers of an answer, for a request with these."""
        if not self._origins:
            return ()
        vary, origin = (b"vary", b"Origin"), asked.get(b"origin")
        if origin not in self._origins:
            return (vary,)
        return vary, (b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSED.encode())

    def preflight(self, scope: Scope, asked: Mapping[bytes, bytes]) -> Response | None:
        """Return the answer to a browser that asks whether a page may ask; None if that is not what is asked, or the
        page is of another origin."""
        asks = scope.get("method") == "OPTIONS" and b"access-control-request-method" in asked
        if not asks or asked.get(b"origin") not in self._origins:
            return None
        named = asked.get(b"access-control-request-headers", b"").strip()
        headers = {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": _LASTS}
        if _HEADERS.fullmatch(named):
            headers["Access-Control-Allow-Headers"] = named.decode()
        return Response(status_code=204, headers=headers)
