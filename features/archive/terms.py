"""Terms of the archive."""

from __future__ import annotations

from typing import Final

from palaver.config.secret_files import secret_of

LEASE: Final = 30.0
"""Seconds for which a worker has what it has taken, unless it acknowledges it before."""


def archive_url() -> str | None:
    """Return the address of the database; None where there is no archive. Raises ConfigurationError as `secret_of`."""
    return secret_of("PALAVER_ARCHIVE_URL")
