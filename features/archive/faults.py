"""The meaning of what a database or its driver raises, in errors of the archive. No word of the database itself is
passed on: it may quote what is stored."""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from palaver.errors import ConfigurationError, PalaverError

from .errors import SLOW, ArchiveAway, ArchiveRefused

_LOGIN: Final = "it refuses the user or the password"
_UNKNOWN: Final = "it has no such database"
_CONNECTIONS: Final = "it has no connection left"
_BETWEEN: Final = "it is starting or stopping"
_FILES: Final = "its files cannot be read or written"
_FULL: Final = "its disk is full"
_READ_ONLY: Final = "it takes no writes: it is a standby, or set to be read only"
_BUSY: Final = "another process holds it up"
_BROKEN: Final = "the connection broke"

_STATES: Final = {
    "08": _BROKEN,
    "25006": _READ_ONLY,
    "28": _LOGIN,
    "3D000": _UNKNOWN,
    "40": _BUSY,
    "53100": _FULL,
    "53300": _CONNECTIONS,
    "53": "it has no room left",
    "55": _BUSY,
    "57014": SLOW,
    "57P": _BETWEEN,
    "58": _FILES,
    "XX": "it found its own state wrong",
}
"""Reasons by the beginning of a SQLSTATE; the first that fits."""
_TABLES: Final = frozenset({"42P01", "42703", "3F000"})
_RIGHTS: Final = "42501"
_SENTENCES: Final = {
    "password": _LOGIN,
    "pg_hba": _LOGIN,
    "does not exist": _UNKNOWN,
    "starting up": _BETWEEN,
    "shutting down": _BETWEEN,
    "recovery": _BETWEEN,
    "not yet accepting": _BETWEEN,
    "too many": _CONNECTIONS,
    "connection slots": _CONNECTIONS,
    "refused": "nothing listens at its address",
    "No such file": "nothing listens at its address",
    "resolve": "its host name is not known",
    "translate host": "its host name is not known",
    "timeout": SLOW,
    "certificate": "its certificate is not accepted",
    "SSL": "TLS fails with it",
    "read-only": _READ_ONLY,
}
"""Reasons by words of libpq, which has no code for a connection that is not made."""
_NAMES: Final = {
    "SQLITE_BUSY": _BUSY,
    "SQLITE_LOCKED": _BUSY,
    "SQLITE_FULL": _FULL,
    "SQLITE_READONLY": "its file cannot be written",
    "SQLITE_IOERR": _FILES,
    "SQLITE_CANTOPEN": "its file cannot be opened",
    "SQLITE_CORRUPT": "its file is damaged",
    "SQLITE_NOTADB": "its file is no database",
    "SQLITE_PERM": "its file cannot be opened",
    "SQLITE_NOMEM": "there is no memory left",
}
"""Reasons by the beginning of a name of SQLite's."""


def told(error: Exception) -> PalaverError | None:
    """Return the error of the archive that an exception stands for; None if it is not of a database."""
    match error:
        case DBAPIError(orig=Exception() as cause):
            return told(cause)
        case NoConnectionLeft():
            return ArchiveAway("all connections to it are in use")
        case TimeoutError():
            return ArchiveAway(SLOW)
        case sqlite3.Error():
            return _of_sqlite(error)
        case OSError():
            return ArchiveAway(_BROKEN)
        case _ if hasattr(error, "sqlstate"):
            return _of_postgresql(error, error.sqlstate)
        case _:
            return None


def takes_no_writes(error: PalaverError) -> bool:
    """Tell whether another server than the one that was asked may take writes by now."""
    return isinstance(error, ArchiveAway) and error.reason in (_READ_ONLY, _BETWEEN)


def _of_postgresql(error: Exception, state: str | None) -> PalaverError:
    if state is None:
        words = str(error)
        return ArchiveAway(next((reason for word, reason in _SENTENCES.items() if word in words), _BROKEN))
    if state in _TABLES:
        return _other_tables()
    if state == _RIGHTS:
        return ConfigurationError(
            "the user of the archive's database has no right to do this: it has to own the schema palaver"
        )
    reason = next((reason for beginning, reason in _STATES.items() if state.startswith(beginning)), None)
    return ArchiveRefused(state) if reason is None else ArchiveAway(reason)


def _of_sqlite(error: sqlite3.Error) -> PalaverError:
    name: str = getattr(error, "sqlite_errorname", "")
    if "no such" in str(error):
        return _other_tables()
    reason = next((reason for beginning, reason in _NAMES.items() if name.startswith(beginning)), None)
    return ArchiveRefused(name or type(error).__name__) if reason is None else ArchiveAway(reason)


def _other_tables() -> ConfigurationError:
    return ConfigurationError("the archive does not have the tables of this version: run `palaver archive migrate`")
