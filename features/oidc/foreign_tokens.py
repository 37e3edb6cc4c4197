"""Tokens of the issuer that the settings name, in the place of keys (ADR 0019). Imported only where there is one."""

from __future__ import annotations

import logging
import time
from typing import Final

from palaver.config.settings import Settings
from palaver.errors import Refused
from palaver.operations.backend import Caller, within_deadline
from palaver.operations.live_keys import IssuerUnavailable, LiveToken
from palaver.store.tenants.tenants import Tenants
from palaver.vocabulary.limits import limit_of

from .claims import LEEWAY, ClaimRules, TokenHolder, UnfitClaims
from .documents import Unfetched
from .issuer import Issuer

_log: Final = logging.getLogger("palaver.api")
_REMEMBERED: Final = 60.0
"""Seconds for which the tag of a tenant is known: a name keeps its tag, unless a backup is restored."""
_MOST: Final = limit_of("tenants")


class ForeignTokens:
    """The tokens of an issuer, and their bearers as callers."""

    def __init__(self, settings: Settings, tenants: Tenants) -> None:
        self._issuer = Issuer.of(settings)
        self._rules = ClaimRules.of(settings)
        self._tenants = tenants
        self._tags: dict[str, tuple[str, float]] = {}
        """The tags of tenants by their names, each with the end of the time for which it is known."""

    async def open(self, token: bytes) -> LiveToken | None:
        """Return the token that this is; None if it is none, or not valid.

        Raises:
            Refused: ``tenant_not_allowed``, it is valid and of no tenant here.
            IssuerUnavailable: that is not known.
            StoreUnavailable: whose it is is not known; so may be what Redis raises.
        """
        try:
            claims = await self._issuer.claims(token.decode("ascii", "replace"))
        except Unfetched:
            raise IssuerUnavailable from None
        if claims is None:
            return None
        now = time.time()
        try:
            identity = self._rules.identity(claims, now)
        except UnfitClaims as why:
            _log.info("a token of PALAVER_OIDC_ISSUER is refused: %s", why)
            return None
        tag = await self._tag(identity)
        caller = Caller(
            trusted=True, name=identity.name, tenant=tag, scopes=identity.scopes, operator=identity.operator
        )
        return LiveToken(caller, time.monotonic() + identity.expires_at + LEEWAY - now, None)

    async def close(self) -> None:
        """Ask the issuer for no more keys."""
        await self._issuer.close()

    async def _tag(self, identity: TokenHolder) -> str:
        tag = "" if identity.tenant is None else await self._known(identity.tenant)
        if tag is None or (tag and identity.operator):
            # The same sentence, whether there is such a tenant or not.
            raise Refused("tenant_not_allowed", "The token names no tenant that its bearer may act for here.")
        return tag

    async def _known(self, name: str) -> str | None:
        tag, until = self._tags.get(name, ("", 0.0))
        if time.monotonic() < until:
            return tag
        tenant = await within_deadline(self._tenants.get(name))
        if tenant is None:
            self._tags.pop(name, None)
            return None
        if len(self._tags) > _MOST:
            self._tags.clear()
        self._tags[name] = tenant.tag, time.monotonic() + _REMEMBERED
        return tenant.tag
