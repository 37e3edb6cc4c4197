"""The parts of the archive that the core asks for. The database is loaded once it is used."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palaver.config.settings import Settings
from palaver.feature import Beside
from palaver.store.reading.recall import Remembering
from palaver.store.server.findings import Finding
from palaver.store.sides import Ground

from .terms import archive_keep, archive_url

if TYPE_CHECKING:
    from palaver.store import Store

_SAID: Final = ("PALAVER_ARCHIVE_URL", "PALAVER_ARCHIVE_URL_FILE")


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
    from .acts import Acts
    from .archiver import Archiver
    from .backlog import Backlog
    from .database import Database

    return [Archiver(store.part(Backlog), Database.of(url), archive_keep(), store.part(Acts)).run]


def memory_of(ground: Ground) -> Remembering | None:
    """Return what brings things back from the archive; None if there is no archive."""
    url = archive_url()
    if url is None:
        return None
    from .remembering import ArchiveMemory

    return ArchiveMemory(ground, url)


def beside(data_dir: Path, environment: Mapping[str, str]) -> Beside:
    """Return an archive in the data directory; the one that the environment says, be it none; or none where the Redis
    is another installation's, or the extra is not installed."""
    if (said := [environment[name] for name in _SAID if name in environment]) and any(said):
        return Beside({}, "archive   the one of PALAVER_ARCHIVE_URL")
    none = "archive   none, and what has ended is gone after PALAVER_RETENTION (a week)"
    if said:
        return Beside({}, none)
    if not all(map(find_spec, ("sqlalchemy", "alembic", "aiosqlite"))):
        return Beside({}, f"{none}; pip install 'palaver[archive]' has one here")
    here, elsewhere = f"sqlite:///{data_dir}/archive.db", "postgresql://USER:PASSWORD@HOST/NAME"
    if environment.get("PALAVER_REDIS_URL") or environment.get("PALAVER_REDIS_URL_FILE"):
        line = f"{none}: others may use that Redis. PALAVER_ARCHIVE_URL={here} has one here, {elsewhere} one for all"
        return Beside({}, line)
    line = f"archive   {data_dir}/archive.db; PALAVER_ARCHIVE_URL={elsewhere} has one for several machines"
    return Beside({"PALAVER_ARCHIVE_URL": here}, line)


def findings_of(settings: Settings) -> Sequence[Finding]:
    """Look at the database, and say whether it takes what ends. Raises as `require`."""
    url = archive_url()
    if url is None:
        return ()
    from .looking import look_at_archive

    return (look_at_archive(url),)
