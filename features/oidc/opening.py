"""The issuer that the settings name. What reads its tokens is imported where there is one: `jwt`, `cryptography` and
`httpx` are 20 MB of each process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaver.config.settings import Settings
from palaver.store.server.findings import Finding

if TYPE_CHECKING:
    from palaver.store import Store

    from .foreign_tokens import ForeignTokens


def tokens_of(settings: Settings, store: Store) -> ForeignTokens | None:
    """Return the tokens of the issuer; None if there is none. Raises ConfigurationError: its settings do not fit."""
    if settings.oidc_issuer is None:
        return None
    from .foreign_tokens import ForeignTokens

    return ForeignTokens(settings, store.tenants)


def findings_of(settings: Settings) -> Sequence[Finding]:
    """Look at the issuer, and say whether it gives keys."""
    if settings.oidc_issuer is None:
        return ()
    from .issuer_check import look_at_issuer

    return (look_at_issuer(settings),)
