"""Operations on what is archived, and on what comes back."""

from __future__ import annotations

from typing import Final, NamedTuple

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.declaration import Script
from palaver.vocabulary.durations import Seconds


@dataclass(frozen=True, slots=True)
class TakenIds:
    """These are for this process to archive, or to have forgotten, while its lease lasts."""

    ids: tuple[str, ...]
    """``conv_…`` is to be archived, ``-conv_…`` and ``-run_…`` to be forgotten."""


class TakeUnarchived(Script[TakenIds]):
    """Take some of what the archive lacks of a shard."""

    when_full = True

    unarchived: Key
    limit: int
    lease: Seconds


@dataclass(frozen=True, slots=True)
class Resting:
    """It has no run that has not ended; or it goes on, and its log is long."""

    fields: tuple[str, ...]
    """Its hash, each field with its name before it. All of its log up to the last position that this says is there as
    long as the hash has the same mark."""


@dataclass(frozen=True, slots=True)
class NotResting:
    """It is not there, it is being deleted, or it goes on, and the end of its run notes it again."""


class ReadResting(Script[Resting | NotResting]):
    """Read the hash of a conversation that is to be archived."""

    when_full = True

    conversation: Key
    log: Key
    unarchived: Key


@dataclass(frozen=True, slots=True)
class Noted:
    """It is among what the archive lacks."""


@dataclass(frozen=True, slots=True)
class DeletionSettled:
    """It is noted no more, unless it was deleted again."""


class SettleDeletion(Script[DeletionSettled]):
    """Say that the archive has forgotten a thing that is deleted here."""

    when_full = True

    unarchived: Key
    forgotten: Key
    mark: str
    since: int
    """The time of the deletion that it has forgotten, in ms."""
    lasts: int
    """Seconds for which that stays known: what was read before is not put back meanwhile."""


class NoteOld(Script[Noted | NotResting]):
    """Have a conversation forgotten that is not kept any longer, unless the store has it."""

    when_full = True

    conversation: Key
    log: Key


class ArchiveAnew(Script[Noted | NotResting]):
    """Have the whole of a conversation archived, as if nothing of it was."""

    when_full = True

    conversation: Key
    log: Key


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The archive has it. If more has happened in the conversation, it stays among those that are to be archived."""


class Acknowledge(Script[Acknowledged]):
    """Say that the archive has a conversation as it was: what has ended may go after the retention."""

    when_full = True

    conversation: Key
    log: Key
    unarchived: Key
    changes: str
    """The text of the mark that it had; empty, as long as only some of its runs are archived."""
    position: int
    """The position of its log up to which it is archived."""
    runs: tuple[str, ...]
    """Its runs that have ended and are archived so."""


class StoredField(NamedTuple):
    """A field of a hash, whatever it is."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """It is in the store."""


@dataclass(frozen=True, slots=True)
class StaysAway:
    """It was deleted, or its tenant is being erased, or was."""


@dataclass(frozen=True, slots=True)
class Expected:
    """An erasure of its tenant finds it."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """It was read too long ago: it may have been deleted since."""


class ExpectLog(Script[Expected]):
    """Note the key that a log comes into before the conversation does."""

    when_full = True

    conversation: Key
    log: Key
    copied: Key
    lasts: int
    """Seconds for which it is there, if it does not become whole."""


class BringBack(Script[BroughtBack | StaysAway | TooLate]):
    """Put a conversation back, unless it is there: as it was, with its log."""

    grows = True

    conversation: Key
    log: Key
    copied: Key
    position: int
    """The last position of its log."""
    created_at: int
    """The time at which it began, in ms."""
    too_late: int
    """The time (ms) from which on it is not put back: what was read may have been deleted by then."""
    stays: int
    """Seconds for which it is there, unless something happens in it."""
    stored_fields: tuple[StoredField, ...]


class BringRunBack(Script[BroughtBack | StaysAway | TooLate]):
    """Put a run back that has ended, unless it is there."""

    grows = True

    conversation: Key
    log: Key
    run: Key
    run_id: str
    created_at: int
    """The time at which it was submitted, in ms."""
    too_late: int
    """As in `BringBack`."""
    stays: int
    """Seconds for which it is there, and its conversation at least."""
    stored_fields: tuple[StoredField, ...]


SCRIPTS: Final = (
    TakeUnarchived,
    ReadResting,
    SettleDeletion,
    NoteOld,
    ArchiveAnew,
    Acknowledge,
    ExpectLog,
    BringBack,
    BringRunBack,
)
