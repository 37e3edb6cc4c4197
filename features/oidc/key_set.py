"""Keys that an issuer signs with, and the tokens that they signed.

The algorithms are those of a key's kind, pinned here; what a token's header says of them is compared and never
believed. There is no symmetric one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jwt

from palaver.late import dataclass
from palaver.vocabulary.limits import count_exceeded, limit_of

from .documents import Unfetched

_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "PS256"),
    ("EC", "P-256"): ("ES256",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By kind and curve."""
_TYPES: Final = frozenset({None, "jwt", "at+jwt", "application/jwt", "application/at+jwt"})
"""Types of tokens, in small letters. Others are made for something else: to log out, to prove something."""
_RSA_BITS: Final = (2048, 8192)
"""The shortest and the longest key: shorter ones can be broken, longer ones take their time."""
_KEY_ID: Final = re.compile(r"[\x21-\x7e]{1,256}")
_LONGEST: Final = limit_of("foreign_token")
_MOST: Final = limit_of("issuer_keys")
_SIGNATURE_ALONE: Final[Any] = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
"""Claims are for features/oidc/claims.py, which knows the issuer."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key of an issuer."""

    id: str
    algorithms: tuple[str, ...]
    """The algorithms that it may have signed with."""
    key: Any

    def signed(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token that it signed; None if it has not."""
        try:
            return jwt.decode(token, self.key, algorithms=self.algorithms, options=_SIGNATURE_ALONE)
        except (jwt.PyJWTError, RecursionError):
            return None


class KeySet:
    """The keys of an issuer. Several may have one id: it may name one of each kind."""

    def __init__(self, keys: Sequence[VerifyingKey]) -> None:
        self.keys = keys

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> KeySet:
        """Return the keys of a set as issuers publish it (RFC 7517). Keys that cannot have signed a token, or that
        others could sign with, are left out.

        Raises:
            Unfetched: it is none, has too many keys, or none that is of use.
        """
        listed = document.get("keys")
        if not isinstance(listed, list):
            raise Unfetched("the issuer's keys are no key set: there is no list `keys`")
        if len(listed) > _MOST:
            count_exceeded("issuer_keys")
            raise Unfetched(f"the issuer has {len(listed)} keys, of at most {_MOST}")
        keys = [key for each in listed if isinstance(each, dict) for key in _usable(each)]
        if not keys:
            raise Unfetched("the issuer has no key of use: RSA of 2048 bits or more, P-256 or Ed25519, with a `kid`")
        return cls(keys)

    def of_id(self, key_id: str) -> Sequence[VerifyingKey]:
        """Return the keys of this id."""
        return [key for key in self.keys if key.id == key_id]


def key_id_of(token: str) -> str | None:
    """Return the id of the key that a token says it was signed with; None if it is none that anybody could accept."""
    if len(token) > _LONGEST:
        count_exceeded("foreign_token")
        return None
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, RecursionError):
        return None
    kind, key_id = header.get("typ"), header.get("kid")
    if isinstance(kind, str):
        kind = kind.lower()
    # A critical extension is one that may not be ignored, and there is none here.
    fits = (kind is None or isinstance(kind, str)) and kind in _TYPES and "crit" not in header
    return key_id if fits and isinstance(key_id, str) and _KEY_ID.fullmatch(key_id) else None


def _usable(fields: Mapping[str, Any]) -> Iterator[VerifyingKey]:
    kind, curve, key_id, use = (fields.get(name) for name in ("kty", "crv", "kid", "use"))
    if not isinstance(kind, str) or not (curve is None or isinstance(curve, str)):
        return
    algorithms = _ALGORITHMS.get((kind, curve), ())
    if "alg" in fields:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == fields["alg"])
    # `d` is a private key's: all readers of the set have it.
    if not algorithms or "d" in fields or use not in (None, "sig") or not isinstance(key_id, str):
        return
    try:
        key = jwt.PyJWK(dict(fields), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return
    if _KEY_ID.fullmatch(key_id) and (kind != "RSA" or _RSA_BITS[0] <= key.key_size <= _RSA_BITS[1]):
        yield VerifyingKey(key_id, algorithms, key)
