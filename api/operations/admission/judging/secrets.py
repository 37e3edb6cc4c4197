"""Secrets of a request: they are kept sealed."""

from __future__ import annotations

from collections.abc import Iterator

from palaver.errors import FieldError


def secret_faults(secrets: object, where: str, *, seals: bool) -> Iterator[FieldError]:
    """Yield a fault if there are ``secrets`` and no key to encrypt them with."""
    if secrets and not seals:
        yield FieldError(where, "no_secret_key", "cannot be kept: PALAVER_SECRET_KEY is not set for the API")
