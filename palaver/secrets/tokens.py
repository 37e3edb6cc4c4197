"""Tokens for browsers: signed claims that live for minutes (RFC 9068), by keys that the servers of the API share.

The algorithm is pinned here; what a header says of it is compared and never believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ALGORITHM: Final = "HS256"
TYPE: Final = "at+jwt"
ISSUER: Final = "palaver"
_LONGEST: Final = 4096
"""Characters of a token that is looked at."""
_CLAIMS: Final = ("iss", "aud", "sub", "iat", "exp", "jti", "scope", "tenant", "conversation")


def sign(claims: Mapping[str, Any], key_id: str, secret: bytes) -> str:
    """Return a token with these claims."""
    # With PyJWT come some 20 ms, which an API without tokens does without.
    import jwt

    whole = {**claims, "iss": ISSUER, "aud": ISSUER}
    return jwt.encode(whole, secret, algorithm=ALGORITHM, headers={"kid": key_id, "typ": TYPE})


def signed_with(token: str) -> str | None:
    """Return the id of the key that a token says it was signed with; None if it is no token."""
    import jwt

    if len(token) > _LONGEST:
        return None
    try:
        header = jwt.get_unverified_header(token)
    except jwt.InvalidTokenError:
        return None
    key_id = header.get("kid")
    fits = header.get("alg") == ALGORITHM and header.get("typ") == TYPE
    return key_id if fits and isinstance(key_id, str) else None


def verified(token: str, secret: bytes) -> Mapping[str, Any] | None:
    """Return the claims of a token that was signed with this secret; None if it was not, or lacks a claim.

    Times are not looked at: their clock is Redis's, which the caller knows.
    """
    import jwt

    options: Any = {"require": list(_CLAIMS), "verify_exp": False, "verify_iat": False, "verify_nbf": False}
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token, secret, algorithms=[ALGORITHM], audience=ISSUER, issuer=ISSUER, options=options
        )
    except jwt.InvalidTokenError:
        return None
    return claims
