"""Event streams, read without I/O: bytes in, events out, however the bytes were cut.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation

LF, CR and CRLF end a line, and an empty line ends an event. What servers do otherwise is taken as meant. Every stream
that is read here carries JSON: so an object behind an object is another event, though no empty line is between them,
and a line of JSON is data, though no ``data:`` stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

Event = tuple[bytes, bytes, bytes | None]
"""The data of an event, its name, and its id; None if this very event had none."""

_COMMENT: Final = re.compile(rb"^:[^\n]*\n", re.MULTILINE)
_EMPTY_LINES: Final = re.compile(rb"\n{3,}")
_ID: Final = re.compile(rb"[ -~]{0,1024}")
"""Matches an id that a header carries."""
_RETRY: Final = re.compile(rb"[0-9]{1,9}")
_BOM: Final = b"\xef\xbb\xbf"
_JSON: Final = (b"{", b"[")


class EventTooLong(ValueError):
    """An event has more bytes than may be."""


class EventParser:
    """Feed it bytes as they come; it answers with the events that they complete.

    The work is linear in what comes, and lines that say nothing cost no call of Python each.
    """

    def __init__(self, longest: int) -> None:
        """An event that is not complete has ``longest`` bytes at most."""
        self._longest = longest
        self._line: list[bytes] = []
        """The beginning of a line, in the pieces in which it came."""
        self._line_size = self._size = 0
        """Bytes of it, and of the lines of data before it."""
        self._after_cr = False
        self._begun = False
        """There are lines of an event that is not complete."""
        self._data: list[bytes] = []
        self._name = self._later_name = b""
        """The name that stands before the data, and that behind it."""
        self._id: bytes | None = None
        self.last_id: bytes | None = None
        """The newest id: what follows it can be asked for."""
        self.retry: float | None = None
        """Seconds to wait before that, once the server has named them."""
        self.foreign = False
        """There was a line that is none of an event stream."""

    @property
    def waiting(self) -> int:
        """Bytes of the event that is not complete yet."""
        return self._line_size + self._size

    def feed(self, data: bytes) -> Sequence[Event]:
        """The events that ``data`` completes.

        Raises:
            EventTooLong: one that is not complete is too long.
        """
        if self._after_cr or b"\r" in data:
            data = self._with_line_feeds(data)
        if self._line:
            end = data.find(b"\n") + 1
            self._hold(data[:end] if end else data)
            if not end:
                return ()
            data = b"".join((*self._line, data[end:]))
            self._line, self._line_size = [], 0
        if not data.endswith(b"\n"):
            end = data.rfind(b"\n") + 1
            self._hold(data[end:])
            data = data[:end]
        if b"\n:" in data or data.startswith(b":"):
            data = _COMMENT.sub(b"", data)
        if b"\n\n\n" in data:
            data = _EMPTY_LINES.sub(b"\n\n", data)
        events: list[Event] = []
        if self._begun and data:
            data = self._go_on(data, events)
        *blocks, rest = data.split(b"\n\n")
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append((block[6:], b"", None))
                continue
            if block.startswith(b"event: "):
                name, _, line = block.partition(b"\n")
                if line.startswith(b"data: ") and b"\n" not in line:
                    events.append((line[6:], name[7:], None))
                    continue
            self._take(block, events)
            self._end(events)
        if rest:
            self._take(rest, events)
        return events

    def end(self) -> Sequence[Event]:
        """The last event of a stream that ends without an empty line."""
        events = [*self.feed(b"\n")]
        self._end(events)
        return events

    def begin(self) -> None:
        """Another stream follows, which goes on behind ``last_id``: what was not complete comes again."""
        self._line, self._line_size = [], 0
        self._end([])

    def _with_line_feeds(self, data: bytes) -> bytes:
        """``data`` with a line feed for each end of a line."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _hold(self, part: bytes) -> None:
        if part:
            self._line.append(part)
            self._line_size += len(part)
            self._check()

    def _check(self) -> None:
        if self._line_size + self._size > self._longest:
            raise EventTooLong

    def _go_on(self, data: bytes, events: list[Event]) -> bytes:
        """Take in more of an event that began before, and return what follows it."""
        if data.startswith(b"\n"):
            self._end(events)
            return data[1:]
        lines, end, data = data.partition(b"\n\n")
        self._take(lines, events)
        if end:
            self._end(events)
        return data

    def _take(self, lines: bytes, events: list[Event]) -> None:
        """Take in the lines of an event."""
        for line in lines.split(b"\n"):
            if line:
                self._begun = True
                self._take_line(line.removeprefix(_BOM), events)

    def _take_line(self, line: bytes, events: list[Event]) -> None:
        if line.startswith(_JSON):
            line = b"data:" + line
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                if self._data and value.startswith(_JSON) and self._data[-1].endswith(b"}"):
                    self._end(events, split=True)
                self._data.append(value)
                self._size += len(value) + 1
                self._check()
            case b"event" if self._data:
                self._later_name = value
            case b"event":
                self._name = value
            case b"id" if _ID.fullmatch(value):
                self._id = self.last_id = value
            case b"retry" if _RETRY.fullmatch(value):
                self.retry = int(value) / 1000
            case b"error":  # of llama.cpp
                self._end(events, split=True)
                self._name = field
                self._data.append(value)
            case b"id" | b"retry" | b"":
                pass
            case _:
                self.foreign = True

    def _end(self, events: list[Event], *, split: bool = False) -> None:
        """The event is complete; with ``split`` although no empty line says so."""
        if self._data:
            name = self._name if split else self._later_name or self._name
            events.append((b"\n".join(self._data), name, self._id))
        self._name = self._later_name if split else b""
        self._later_name = b""
        self._data, self._id, self._size, self._begun = [], None, 0, False
