"""Entries of the due index."""

from __future__ import annotations

from typing import Self

from palaver.late import dataclass


@dataclass(frozen=True, slots=True)
class DueItem:
    """Something that may be due: a step of a run, its ``start``, its ``end``, or a look at its ``parent``."""

    run_id: str
    what: str
    ready: str | None = None
    """The queue among whose unclaimed deliveries it was found; None: it is in the due index."""

    @classmethod
    def of(cls, entry: str, ready: str | None = None) -> Self:
        """Read an entry of the index, or of the deliveries of the queue ``ready``."""
        run_id, _, what = entry.partition("/")
        return cls(run_id, what, ready)

    @property
    def is_step(self) -> bool:
        """True of a step, whose name begins with its number."""
        return self.what[:1].isdigit()
