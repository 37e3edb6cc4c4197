"""The parts of the archive that the core asks for. The database is loaded once it is used."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaver.config.settings import Settings
from palaver.store.reading.recall import Remembering
from palaver.store.server.findings import Finding
from palaver.store.sides import Ground

from .terms import archive_keep, archive_url

if TYPE_CHECKING:
    from palaver.store import Store


def require(settings: Settings) -> None:
    """Look whether there is to be an archive, and can be.

    Raises:
        ConfigurationError: PALAVER_ARCHIVE_URL is none of a database, or what speaks to it is not installed.
    """
    if url := archive_url():
        from .database import Database

        Database.of(url)
        archive_keep()


def loops(settings: Settings, store: Store, worker: str) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return the loop that archives; none if there is no archive. Raises as `require`."""
    url = archive_url()
    if url is None:
        return []
    from .archiver import Archiver
    from .backlog import Backlog
    from .database import Database

    return [Archiver(store.part(Backlog), Database.of(url), archive_keep()).run]


def memory_of(ground: Ground) -> Remembering | None:
    """Return what brings things back from the archive; None if there is no archive."""
    url = archive_url()
    if url is None:
        return None
    from .remembering import ArchiveMemory

    return ArchiveMemory(ground, url)


def variables_of_up(data_dir: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variable for an archive in the data directory; nothing where the environment says what there is, be it
    none, the Redis is another installation's, or the extra is not installed."""
    said = "PALAVER_ARCHIVE_URL" in environment or "PALAVER_ARCHIVE_URL_FILE" in environment
    shared = environment.get("PALAVER_REDIS_URL") or environment.get("PALAVER_REDIS_URL_FILE")
    if said or shared or not all(map(find_spec, ("sqlalchemy", "alembic", "aiosqlite"))):
        return {}
    return {"PALAVER_ARCHIVE_URL": f"sqlite:///{data_dir}/archive.db"}


def findings_of(settings: Settings) -> Sequence[Finding]:
    """Look at the database, and say whether it takes what ends. Raises as `require`."""
    url = archive_url()
    if url is None:
        return ()
    from .looking import look_at_archive

    return (look_at_archive(url),)
