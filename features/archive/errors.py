"""The errors of an archive. None has a word of what is stored, nor a password.

StoreUnavailable
 └── ArchiveAway       the database is not there, or takes nothing: later it may
PalaverError
 ├── ArchiveRefused    the database does not take this, now or later
 ├── ArchiveOvertaken  another writer was there first
 └── ArchiveBehind     it lacks what goes before
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from palaver.errors import PalaverError, StoreUnavailable

SLOW: Final = "it did not answer in time"


class ArchiveAway(StoreUnavailable):
    """The database of the archive did nothing: it may be tried again. ``reason`` says why, in words for operators."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the archive is away: {reason}")
        self.reason = reason


class ArchiveRefused(PalaverError):
    """The database of the archive refuses what is written or asked, and would again. Nothing was written. ``code`` is
    its own code for that: a SQLSTATE, or a name of SQLite's."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the database of the archive refused it ({code})")
        self.code = code


class ArchiveOvertaken(PalaverError):
    """Another writer has written or deleted these conversations since they were looked up. Nothing was written."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = tuple(ids)
        super().__init__(f"{len(self.ids)} conversations have changed in the archive meanwhile")


class ArchiveBehind(PalaverError):
    """The archive does not have these conversations up to where they are to go on. Nothing was written."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = tuple(ids)
        super().__init__("the archive does not have what it had: it is another one, or was restored")
