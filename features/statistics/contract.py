"""Operations on the journal that statistics are made of (ADR 0042)."""

from __future__ import annotations

from typing import Final, NamedTuple

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Gone


@dataclass(frozen=True, slots=True)
class Folded:
    """The lines are added up, and gone."""


class FoldedTally(NamedTuple):
    """A tally as it is with the lines."""

    key: Key
    field: str
    tally: bytes
    """JSON."""


class FoldJournal(Script[Folded | Gone]):
    """Take the oldest lines out of the journal, and write the tallies that they are in from now on; unless another
    process else has taken lines out since they were read."""

    when_full = True

    journal: Key
    first: str
    """The id of the first of them."""
    next: str
    """An id behind the last of them."""
    lasts: int
    """Seconds for which a tenant's tallies stay after the last one was written."""
    tallies: tuple[FoldedTally, ...]


SCRIPTS: Final = (FoldJournal,)
