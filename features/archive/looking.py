"""A look at the database of the archive, for `palaver check`."""

from __future__ import annotations

import asyncio
from typing import Final

from palaver.errors import ConfigurationError
from palaver.store.server.findings import Finding

from .database import Database
from .errors import ArchiveAway

_AWAY: Final = "runs go on, and what has ended stays in Redis; what has left Redis is answered 503"
_ADVICE: Final = "see to PALAVER_ARCHIVE_URL, and the way there"


def look_at_archive(url: str) -> Finding:
    """Ask the database for its schema and its size. It may take some seconds. Raises ConfigurationError for a URL that
    is none."""
    return asyncio.run(_look(Database.of(url)))


async def _look(database: Database) -> Finding:
    try:
        revision = await database.revision()
        if revision is None:
            return Finding("archive", "schema", "ok", "none yet: workers make it, or `palaver archive migrate`")
        size = await database.size()
        found = f"schema {revision}, {size['conversations']} conversations, {size['bytes'] / (1 << 20):.0f} MiB"
        return Finding("archive", "schema", "ok", found)
    except (ArchiveAway, ConfigurationError) as error:
        return Finding("archive", "schema", "error", str(error), _AWAY, _ADVICE)
    finally:
        await database.close()
