"""Settings of the issuer whose tokens the API takes: addresses, claims, and the scopes that values of one stand for."""

from __future__ import annotations

from typing import Final, get_args
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from palaver.config.environment import FromEnvironment
from palaver.config.lists import entries
from palaver.late import dataclass
from palaver.vocabulary.addresses import host_and_port, is_ip, is_loopback, never_asked
from palaver.vocabulary.names import did_you_mean
from palaver.vocabulary.scopes import SCOPES, Scope

OPERATOR: Final = "operator"
"""In place of scopes: all of them, and all tenants."""
_LONGEST: Final = 500
_CLAIM: Final = r"^[^\s\x00-\x1f]{1,200}$"


@dataclass(frozen=True, slots=True)
class ScopeGrant:
    """The scopes that a value of a claim stands for."""

    value: str
    scopes: frozenset[Scope]
    operator: bool = False
    """True if it makes an operator."""


class IssuerSettings(FromEnvironment):
    """The part of the settings that is about an issuer."""

    model_config = ConfigDict(defer_build=True)

    oidc_issuer: str | None = None
    """The issuer of OpenID Connect whose tokens the API takes as it takes keys, exactly as ``iss`` of these has it."""
    oidc_audience: str | None = Field(default=None, max_length=500)
    """The audience of these: their ``aud`` names it."""
    oidc_tenant_claim: str | None = Field(default=None, pattern=_CLAIM)
    """The claim that names the tenant of the holder of such a token. None: all are of the default tenant."""
    oidc_scopes_claim: str = Field(default="scope", pattern=_CLAIM)
    """The claim with scopes, a text with blanks between them or a list."""
    oidc_scopes: tuple[ScopeGrant, ...] = ()
    """The scopes that values of that claim stand for, comma separated, each ``VALUE=SCOPE SCOPE`` or
    ``VALUE=operator``; no other value counts then. None: values are scopes by their names."""
    oidc_jwks_url: str | None = None
    """The address of the issuer's keys; default: the one that its metadata has."""
    oidc_private_hosts: tuple[str, ...] = ()
    """Hosts of the issuer and of its keys that may have addresses of a private network, comma separated."""

    @field_validator("oidc_issuer", "oidc_jwks_url")
    @classmethod
    def _issuers_address(cls, value: str | None, field: ValidationInfo) -> str | None:
        return value and issuer_url(value, query=field.field_name == "oidc_jwks_url")

    @field_validator("oidc_scopes", "oidc_private_hosts", mode="before")
    @classmethod
    def _issuers_lists(cls, value: object, field: ValidationInfo) -> object:
        entry = scope_grant if field.field_name == "oidc_scopes" else private_host
        return entries(value, entry) if isinstance(value, str) else value

    @field_validator(
        "oidc_audience", "oidc_tenant_claim", "oidc_scopes_claim", "oidc_scopes", "oidc_jwks_url", "oidc_private_hosts"
    )
    @classmethod
    def _of_an_issuer(cls, value: object, field: ValidationInfo) -> object:
        if "oidc_issuer" not in field.data:
            return value
        issuer = field.data["oidc_issuer"]
        if issuer is None and value != cls.model_fields[field.field_name or ""].default:
            raise ValueError("is nothing without PALAVER_OIDC_ISSUER: set that, or unset this")
        if field.field_name == "oidc_audience" and value is None and issuer is not None:
            raise ValueError("is not set: name the audience that tokens of PALAVER_OIDC_ISSUER must be for")
        return value


def issuer_url(text: str, *, query: bool) -> str:
    """An address of an issuer, as it was written; that of its keys may have a ``query``.

    Raises:
        ValueError: it is none; says why.
    """
    if not text.startswith(("http://", "https://")):
        raise ValueError("must begin with https://")
    place = urlsplit(text)
    if "#" in text or ("?" in text and not query) or len(text) > _LONGEST:
        raise ValueError(f"must have neither a query nor a fragment, and {_LONGEST} characters at most")
    host, _ = host_and_port(text)
    if place.scheme == "http" and not is_loopback(host):
        raise ValueError("must begin with https://: http:// is for an issuer on this machine alone")
    return text


def private_host(text: str) -> str:
    """A host that may have addresses of a private network, as it is compared.

    Raises:
        ValueError: it is none; says why.
    """
    if "/" in text or "*" in text:
        raise ValueError("is no host: write them one by one, without https:// and without a path")
    bare = ":" in text and not text.startswith("[")
    host, port = host_and_port(f"[{text}]" if bare and text.count(":") > 1 else text)
    if port is not None:
        raise ValueError("has a port: any of a host is meant")
    if is_ip(host) and never_asked(host, loopback=True):
        raise ValueError("is an address at which nothing is ever asked")
    return host


def scope_grant(text: str) -> ScopeGrant:
    """An entry of the scopes that values of a claim stand for, ``VALUE=SCOPE SCOPE``, or ``VALUE=operator``.

    Raises:
        ValueError: it is none; says why.
    """
    value, _, scopes = (part.strip() for part in text.rpartition("="))
    names = scopes.split()
    if not value or not names:
        raise ValueError("is not VALUE=SCOPE, VALUE=SCOPE SCOPE or VALUE=operator")
    for name in names:
        if name not in (*get_args(Scope), OPERATOR):
            raise ValueError(f"has {name[:32]!r}, which is no scope{did_you_mean(name, (*SCOPES, OPERATOR))}")
    if OPERATOR in names:
        return ScopeGrant(value, frozenset(SCOPES), operator=True)
    return ScopeGrant(value, frozenset(scope for scope in SCOPES if scope in names))
