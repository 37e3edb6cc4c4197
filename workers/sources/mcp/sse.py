"""Server-sent events of one answer, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .wire import MAX_BODY, InvalidAnswer

_LONGEST_ID: Final = 1024
_RETRY, _LONGEST_RETRY = 1.0, 60.0
"""Seconds."""


class EventReader:
    """Takes bytes in and yields the data of events. All of them together have a limit."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._read = 0
        self.last_id: str | None = None
        """The id of the newest event that has one: what follows it can be asked for."""
        self.retry = _RETRY
        """Seconds after which it is to be asked for."""

    def begin(self) -> None:
        """Take in another stream, which goes on where the last one broke off."""
        self._line.clear()
        self._data = []

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of each event that ``piece`` completes.

        Raises:
            InvalidAnswer: it is more than may be.
        """
        self._read += len(piece)
        if self._read > MAX_BODY:
            raise InvalidAnswer(f"it sent more than {MAX_BODY:,} bytes")
        self._line += piece
        if b"\n" not in piece:
            return
        *lines, rest = bytes(self._line).split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            yield from self._take(line.removesuffix(b"\r"))

    def _take(self, line: bytes) -> Iterator[bytes]:
        if line:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                self._data.append(value)
            elif field == b"id" and len(value) <= _LONGEST_ID and value.isascii() and value.decode().isprintable():
                self.last_id = value.decode() or None
            elif field == b"retry" and value.isdigit() and len(value) < 9:
                self.retry = min(int(value) / 1000, _LONGEST_RETRY)
        elif self._data:
            data, self._data = b"\n".join(self._data), []
            if data:
                yield data
