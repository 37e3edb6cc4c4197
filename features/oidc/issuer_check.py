"""The keys of the issuer whose tokens the API takes, looked at from here."""

from __future__ import annotations

import asyncio
from typing import Final

from palaver.config.settings import Settings
from palaver.store.server.findings import Finding

from .documents import Unfetched
from .issuer import Issuer

_MEANS: Final = "gives no keys: its tokens are answered 503, or for 6 hours judged by the keys that the API has"
_ADVICE: Final = "see to PALAVER_OIDC_ISSUER, PALAVER_OIDC_JWKS_URL and PALAVER_OIDC_PRIVATE_HOSTS, and the way there"


def look_at_issuer(settings: Settings) -> Finding:
    """Ask the issuer for its keys. It may take some seconds."""
    try:
        keys = asyncio.run(Issuer.of(settings).fetch()).keys
    except Unfetched as error:
        return Finding("issuer", "keys", "error", str(error), _MEANS, _ADVICE)
    kinds = sorted({" or ".join(key.algorithms) for key in keys})
    return Finding("issuer", "keys", "ok", f"{len(keys)} of {settings.oidc_issuer}: {', '.join(kinds)}")
