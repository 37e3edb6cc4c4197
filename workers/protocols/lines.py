"""A stream's lines, out of bytes that are cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.vocabulary.limits import limit_of

from .bounds import too_large

_LINE: Final = limit_of("answer_line")


class Lines:
    """Splits a stream. The work is linear in what comes, however it is cut, and what is beyond the limit is not
    kept."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """The beginning of a line, in the pieces in which it came."""
        self.waiting = 0
        """Bytes of it."""

    def split(self, data: bytes) -> Sequence[bytes]:
        """The lines that ``data`` ends. Raises ResponseTooLarge if one is longer than may be."""
        if self._rest:
            first, newline, data = data.partition(b"\n")
            self._wait_for_more(first)
            if not newline:
                return ()
            lines = [b"".join(self._rest), *data.split(b"\n")]
            self._rest, self.waiting = [], 0
        else:
            lines = data.split(b"\n")
        if last := lines.pop():
            self._wait_for_more(last)
        return lines

    def _wait_for_more(self, part: bytes) -> None:
        self._rest.append(part)
        self.waiting += len(part)
        if self.waiting > _LINE:
            raise too_large("answer_line", "a line of the stream has", "bytes")
