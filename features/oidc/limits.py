"""Limits of tokens of an issuer. Each group stands behind a limit of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.limits import KIB, Limit, limit_rows

LIMITS: Final[Mapping[str, Sequence[Limit]]] = MappingProxyType(
    {
        "api_keys_known": limit_rows(
            "Keys",
            ("foreign_token", "a token of the issuer of PALAVER_OIDC_ISSUER", 16 * KIB, "bytes", "401 `invalid_token`"),
            (
                "issuer_document",
                "metadata of the issuer, and its keys",
                128 * KIB,
                "bytes",
                "those known serve on for 6 hours",
            ),
            ("issuer_keys", "keys of the issuer", 50, "keys", "those known serve on for 6 hours"),
        ),
    }
)
