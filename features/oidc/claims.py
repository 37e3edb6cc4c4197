"""Claims of a token whose signature is good: who it is of, for whom it was made, until when, and with which scopes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from palaver.config.oidc import ScopeGrant
from palaver.config.settings import Settings
from palaver.late import dataclass
from palaver.vocabulary.scopes import SCOPES, Scope

NAMED: Final = "oidc:"
"""The beginning of the name of the holder of such a token. No key has a colon in its name."""
LEEWAY: Final = 30.0
"""Seconds by which the clocks of the issuer and of this machine may differ."""
_SUBJECT: Final = re.compile(r"[\x21-\x7e]{1,255}")
"""A `sub` is 255 ASCII characters at most; blanks would let it say more in a log line than a name."""
_LATEST: Final = 1 << 53


class UnfitClaims(Exception):
    """The claims do not fit; says why, for the log alone."""


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The bearer of a token, as the issuer has it."""

    name: str
    tenant: str | None
    """The name of the tenant; None if no claim has to say it; empty if the claim says none."""
    scopes: frozenset[Scope]
    operator: bool
    expires_at: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The rules for claims, as the settings say."""

    issuer: str
    audience: str
    tenant_claim: str | None
    scopes_claim: str
    grants: Sequence[ScopeGrant]

    @classmethod
    def of(cls, settings: Settings) -> ClaimRules:
        """Return the rules of these settings, which have an issuer."""
        assert settings.oidc_issuer is not None
        assert settings.oidc_audience is not None
        return cls(
            settings.oidc_issuer,
            settings.oidc_audience,
            settings.oidc_tenant_claim,
            settings.oidc_scopes_claim,
            settings.oidc_scopes or [ScopeGrant(scope, frozenset({scope})) for scope in SCOPES],
        )

    def identity(self, claims: Mapping[str, Any], now: float) -> TokenHolder:
        """Return the bearer of a token with these claims, at the Unix time ``now``.

        Raises:
            UnfitClaims: it is not of this issuer, not for this audience, not valid now, or has a claim of another type.
        """
        if claims.get("iss") != self.issuer:
            raise UnfitClaims("iss is not PALAVER_OIDC_ISSUER")
        if self.audience not in _texts(claims, "aud"):
            raise UnfitClaims("aud does not name PALAVER_OIDC_AUDIENCE")
        expires_at = _time(claims, "exp")
        if expires_at + LEEWAY <= now:
            raise UnfitClaims("exp is over")
        for name in ("nbf", "iat"):
            if name in claims and _time(claims, name) - LEEWAY > now:
                raise UnfitClaims(f"{name} is in the future")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
            raise UnfitClaims("sub is not 1 to 255 printable characters of ASCII without blanks")
        values = _values(claims, self.scopes_claim)
        granted = [grant for grant in self.grants if grant.value in values]
        return TokenHolder(
            name=f"{NAMED}{subject}",
            tenant=self._tenant(claims),
            scopes=frozenset[Scope]().union(*(grant.scopes for grant in granted)),
            operator=any(grant.operator for grant in granted),
            expires_at=expires_at,
        )

    def _tenant(self, claims: Mapping[str, Any]) -> str | None:
        if self.tenant_claim is None:
            return None
        said = _claim(claims, self.tenant_claim)
        return said if isinstance(said, str) else ""


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim of this very name; or one within others, as in ``realm_access.roles``. None if there is none."""
    if name in claims:
        return claims[name]
    place: Any = claims
    for part in name.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    return place


def _values(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    said = _claim(claims, name)
    if said is None:
        return frozenset()
    if isinstance(said, str):
        return frozenset(said.split())
    if not isinstance(said, list) or not all(isinstance(value, str) for value in said):
        raise UnfitClaims(f"{name} is neither a text nor a list of texts")
    return frozenset(said)


def _texts(claims: Mapping[str, Any], name: str) -> Sequence[Any]:
    said = claims.get(name)
    if isinstance(said, str):
        return [said]
    if not isinstance(said, list):
        raise UnfitClaims(f"{name} is neither a text nor a list")
    return said


def _time(claims: Mapping[str, Any], name: str) -> float:
    said = claims.get(name)
    # No comparison with NaN is true.
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said < _LATEST:
        raise UnfitClaims(f"{name} is no time")
    return float(said)
