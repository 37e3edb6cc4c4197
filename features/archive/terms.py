"""Terms of the archive."""

from __future__ import annotations

import os
from typing import Final

from palaver.config.secret_files import secret_of
from palaver.errors import ConfigurationError
from palaver.secrets.redaction import passwords_of, register_secrets

LEASE: Final = 30.0
"""Seconds for which a worker has what it has taken, unless it acknowledges it before."""

FORGOTTEN: Final = 600
"""Seconds for which a deletion stays known once the archive has forgotten what was deleted."""
READ: Final = 300
"""Seconds after which what was read of the archive is not put back into the store: within `FORGOTTEN`."""


_LEAST: Final = 86_400.0
"""Seconds: less is no archive, and would be over before an export of it is."""


def archive_keep() -> float | None:
    """Return for how long (s) a conversation is kept in which nothing happens; None for ever. Raises ConfigurationError
    for what is no such time."""
    text = os.environ.get("PALAVER_ARCHIVE_KEEP", "").strip()
    if not text:
        return None
    try:
        keep = float(text)
    except ValueError:
        keep = 0.0
    if not _LEAST <= keep < float("inf"):
        raise ConfigurationError("PALAVER_ARCHIVE_KEEP has to be a number of seconds, 86400 or more; empty is for ever")
    return keep


def archive_url() -> str | None:
    """Return the address of the database; None where there is no archive. Raises ConfigurationError as `secret_of`, and
    for a file that is empty."""
    url = secret_of("PALAVER_ARCHIVE_URL")
    if url is None and os.environ.get("PALAVER_ARCHIVE_URL_FILE"):
        raise ConfigurationError("PALAVER_ARCHIVE_URL_FILE names an empty file: it is to have the database's address")
    register_secrets(passwords_of(url))
    return url
