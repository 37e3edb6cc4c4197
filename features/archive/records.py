"""The records of an archive: what Redis has of a conversation, and what is read back, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaver.late import dataclass


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """An entry of a conversation's log."""

    position: int
    """Its place in the log, from 1."""
    fields: Mapping[str, str]
    """The fields of the stream's entry, in their order. They come back byte for byte."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """A run."""

    id: str
    fields: Mapping[str, str]
    """Its whole hash."""


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A run or a conversation of a list."""

    id: str
    place: tuple[int, str]
    """The time (ms) that it has there, and its id."""
    fields: Mapping[str, str]
    """Its whole hash."""


@dataclass(frozen=True, slots=True)
class ArchivedConversation:
    """A conversation, and the part of it that the archive is to have from now on."""

    id: str
    fields: Mapping[str, str]
    """Its whole hash."""
    entries: Sequence[ArchivedEntry]
    """All of its log behind the position ``after``: they replace what the archive has there."""
    runs: Sequence[ArchivedRun]
    """Its runs that are new or have changed."""
    after: int
    """0: ``entries`` is the whole log."""

    @property
    def goes_on(self) -> bool:
        """It has runs that have not ended; what comes behind is archived later."""
        return goes_on(self.fields)


def goes_on(fields: Mapping[str, str]) -> bool:
    """Tell whether a conversation of this hash has runs that have not ended."""
    return int(fields.get("unfinished", 0)) > 0


@dataclass(frozen=True, slots=True)
class ArchivedVersions:
    """The state of some conversations in the archive, to be asked for before they are read from Redis. It is void once
    another writer has written or forgotten one of them."""

    versions: Mapping[str, int]
    """The version of each that the archive has."""
    forgotten: int
    """A count of deletions in the whole archive, for the conversations that it does not have."""
