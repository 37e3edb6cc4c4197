"""Ids of responses. A response is a run, or the part of one up to a call that the client answers: its id is that of the
run in other letters, and the number of the part behind the first."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from palaver.errors import UnknownRun
from palaver.vocabulary.ids import is_id

_RUN: Final = "run_"
_RESPONSE: Final = "resp_"
_ID: Final = re.compile(r"resp_([0-9a-z]{28}|[0-9a-z]{8}_[0-9a-z]{26})(?:_([1-9][0-9]{0,3}))?")
PATTERN: Final = f"^{_ID.pattern}$"


class ResponseId(NamedTuple):
    """A response by its run."""

    run_id: str
    part: int = 0
    """The number of times that the run had waited for the client before it."""

    @classmethod
    def read(cls, text: str) -> ResponseId:
        """Return the id that ``text`` is.

        Raises:
            UnknownRun: no response has such an id.
        """
        match = _ID.fullmatch(text)
        run_id = "" if match is None else f"{_RUN}{match[1]}"
        if match is None or not is_id("run", run_id):
            raise UnknownRun(text)
        return cls(run_id, int(match[2] or 0))

    def __str__(self) -> str:
        """The id as clients have it."""
        return f"{_RESPONSE}{self.tail}"

    @property
    def tail(self) -> str:
        """The part of it that ids of items have, too."""
        letters = self.run_id.removeprefix(_RUN)
        return f"{letters}_{self.part}" if self.part else letters

    @property
    def next(self) -> ResponseId:
        """The response that goes on with it, once the client has answered."""
        return ResponseId(self.run_id, self.part + 1)

    @property
    def previous(self) -> ResponseId | None:
        """The response that it goes on with; None for the first of a run."""
        return ResponseId(self.run_id, self.part - 1) if self.part else None
