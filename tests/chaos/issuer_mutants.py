"""Mutants of the tokens of an issuer (ADR 0019): each takes one condition away, and the test that is named
must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import by_name, tested

_TOKENS: Final = "features/oidc/tests/unit/test_api_foreign_tokens.py"
_ISSUER_TEST: Final = "features/oidc/tests/unit/test_issuer.py"
_KEY_SET: Final = "features/oidc/key_set.py"
_CLAIMS: Final = "features/oidc/claims.py"
_ISSUER: Final = "features/oidc/issuer.py"
_DOCUMENTS: Final = "features/oidc/documents.py"
_OPENING: Final = "features/oidc/foreign_tokens.py"

MUTANTS: Final = by_name(
    tested(
        "the algorithm of the header",
        _TOKENS,
        _KEY_SET,
        "algorithms=self.algorithms",
        'algorithms=[jwt.get_unverified_header(token)["alg"]]',
    ),
    tested("any audience", _TOKENS, _CLAIMS, 'if self.audience not in _texts(claims, "aud"):', "if False:"),
    tested("any issuer", _TOKENS, _CLAIMS, 'if claims.get("iss") != self.issuer:', "if False:"),
    tested("a token for ever", _TOKENS, _CLAIMS, "if expires_at + LEEWAY <= now:", "if False:"),
    tested("a token before its time", _TOKENS, _CLAIMS, "_time(claims, name) - LEEWAY > now", "False"),
    tested("any kind of token", _TOKENS, _KEY_SET, " and kind in _TYPES", ""),
    tested(
        "a fetch for each unknown key",
        _ISSUER_TEST,
        _ISSUER,
        "time.monotonic() + (AGAIN if self._serving is None else COOL_DOWN)",
        "time.monotonic()",
    ),
    tested("a fetch for each token", _ISSUER_TEST, _ISSUER, "if self._fetching is None and", "if"),
    tested("keys that serve for ever", _ISSUER_TEST, _ISSUER, "<= SERVES else None", "<= SERVES else self._keys"),
    tested(
        "an issuer that is away has no such key",
        _ISSUER_TEST,
        _ISSUER,
        "if known is None or (unanswered and not known.of_id(key_id)):",
        "if known is None:",
    ),
    tested("the metadata of another", _ISSUER_TEST, _ISSUER, 'if metadata.get("issuer") != self.url:', "if False:"),
    tested("weak keys", _ISSUER_TEST, _KEY_SET, "_RSA_BITS: Final = (2048, 8192)", "_RSA_BITS: Final = (1024, 8192)"),
    tested("private addresses", _ISSUER_TEST, _DOCUMENTS, "else not is_inner(address)", "else True"),
    tested("redirects", _ISSUER_TEST, _DOCUMENTS, "follow_redirects=False", "follow_redirects=True"),
    tested("answers without an end", _ISSUER_TEST, _DOCUMENTS, "if len(body) > _LONGEST:", "if False:"),
    tested("an operator of any tenant", _TOKENS, _OPENING, " or (tag and identity.operator)", ""),
    tested("no tenant is the default one", _TOKENS, _CLAIMS, 'if isinstance(said, str) else ""', "if said else None"),
)
