"""Server-sent events of one answer, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator

from .wire import MAX_BODY, InvalidAnswer


class EventReader:
    """Takes bytes in and yields the data of events. All of them together have a limit."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._read = 0

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
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
        elif self._data:
            data, self._data = b"\n".join(self._data), []
            if data:
                yield data
