"""Mutants of the tokens of an issuer (ADR 0019): each takes one condition away, and the test that is named must say so.

    python -m tests.chaos.issuer_mutants [NAME …]

Seconds for each.
"""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name, play_named

_TOKENS: Final = "features/oidc/tests/unit/test_api_foreign_tokens.py"
_ISSUER_TEST: Final = "features/oidc/tests/unit/test_issuer.py"
_KEY_SET: Final = "features/oidc/key_set.py"
_CLAIMS: Final = "features/oidc/claims.py"
_ISSUER: Final = "features/oidc/issuer.py"
_DOCUMENTS: Final = "features/oidc/documents.py"
_OPENING: Final = "features/oidc/foreign_tokens.py"


def _mutant(name: str, test: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


ISSUER_MUTANTS: Final = by_name(
    _mutant(
        "the algorithm of the header",
        _TOKENS,
        _KEY_SET,
        "algorithms=self.algorithms",
        'algorithms=[jwt.get_unverified_header(token)["alg"]]',
    ),
    _mutant("any audience", _TOKENS, _CLAIMS, 'if self.audience not in _texts(claims, "aud"):', "if False:"),
    _mutant("any issuer", _TOKENS, _CLAIMS, 'if claims.get("iss") != self.issuer:', "if False:"),
    _mutant("a token for ever", _TOKENS, _CLAIMS, "if expires_at + LEEWAY <= now:", "if False:"),
    _mutant("a token before its time", _TOKENS, _CLAIMS, "_time(claims, name) - LEEWAY > now", "False"),
    _mutant("any kind of token", _TOKENS, _KEY_SET, " and kind in _TYPES", ""),
    _mutant(
        "a fetch for each unknown key",
        _ISSUER_TEST,
        _ISSUER,
        "time.monotonic() + (AGAIN if self._serving is None else COOL_DOWN)",
        "time.monotonic()",
    ),
    _mutant("a fetch for each token", _ISSUER_TEST, _ISSUER, "if self._fetching is None and", "if"),
    _mutant("keys that serve for ever", _ISSUER_TEST, _ISSUER, "<= SERVES else None", "<= SERVES else self._keys"),
    _mutant(
        "an issuer that is away has no such key",
        _ISSUER_TEST,
        _ISSUER,
        "if known is None or (unanswered and not known.of_id(key_id)):",
        "if known is None:",
    ),
    _mutant("the metadata of another", _ISSUER_TEST, _ISSUER, 'if metadata.get("issuer") != self.url:', "if False:"),
    _mutant("weak keys", _ISSUER_TEST, _KEY_SET, "_RSA_BITS: Final = (2048, 8192)", "_RSA_BITS: Final = (1024, 8192)"),
    _mutant("private addresses", _ISSUER_TEST, _DOCUMENTS, "else not is_inner(address)", "else True"),
    _mutant("redirects", _ISSUER_TEST, _DOCUMENTS, "follow_redirects=False", "follow_redirects=True"),
    _mutant("answers without an end", _ISSUER_TEST, _DOCUMENTS, "if len(body) > _LONGEST:", "if False:"),
    _mutant("an operator of any tenant", _TOKENS, _OPENING, " or (tag and identity.operator)", ""),
    _mutant("no tenant is the default one", _TOKENS, _CLAIMS, 'if isinstance(said, str) else ""', "if said else None"),
)


if __name__ == "__main__":
    play_named(ISSUER_MUTANTS)
