"""Event streams, read without I/O: bytes in, events out, however the bytes were cut.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation

LF, CR and CRLF end a line, and an empty line ends an event. What servers do otherwise is taken as meant: a field that
is indented or in capitals, and ``data:`` twice. Every stream that is read here carries JSON: so a value behind a value
is another event, though no empty line is between them, and a line of JSON, or of the rest of it, is data, though no
``data:`` stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

Event = tuple[bytes, bytes, bytes | None]
"""The data of an event, its name, and its id; None if this very event had none."""

_COMMENT: Final = re.compile(rb"^:[^\n]*\n", re.MULTILINE)
_LINE_END: Final = re.compile(rb"[\r\n]")
_EMPTY_LINES: Final = re.compile(rb"\n{3,}")
_LF, _CR, _COLON = b"\n\r:"
_ID: Final = re.compile(rb"[ -~]{0,1024}")
"""Matches an id that a header carries."""
_RETRY: Final = re.compile(rb"[0-9]{1,9}")
_BOM: Final = b"\xef\xbb\xbf"
_JSON: Final = (b"{", b"[")
_VALUE_ENDS: Final = (*(b"%c" % byte for byte in b'}]"0123456789'), b"null", b"true", b"false")
_GOES_ON: Final = (b",", b":", b"]", b"}")
_FIELDS: Final = frozenset((b"data", b"event", b"id", b"retry"))


class EventTooLong(ValueError):
    """An event has more bytes than may be."""


class EventParser:
    """Feed it bytes as they come; it answers with the events that they complete. A last one that no empty line ends is
    completed by feeding two line feeds.

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
        self._waits = False
        """There is something that goes on with what comes: one of those three."""
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
        if self._waits:
            data = self._behind_what_waits(data)
        if not data:
            return ()
        lines = data.splitlines()
        if data[-1] != _LF:
            self._wait(data[-1], lines)
        name, payload = self._name, None
        if self._begun:
            if self._id is not None or self._later_name or len(self._data) > 1:
                return self._feed_slowly(lines)
            payload = self._data[0] if self._data else None
        events: list[Event] = []
        for line in lines:
            if not line:
                if payload:
                    events.append((payload, name, None))
                name, payload = b"", None
            elif payload is not None:
                return self._feed_slowly(lines)
            elif (field := line[:7]) == b"data: {":
                payload = line[6:]
            elif field == b"event: ":
                name = line[7:]
            elif field[:6] == b"data:{":
                payload = line[5:]
            elif field[0] != _COLON:
                return self._feed_slowly(lines)
        if payload is not None or name or self._begun:
            self._keep(name, payload)
        return events

    def _keep(self, name: bytes, payload: bytes | None) -> None:
        """The event that is not complete has this name and this line of data, if any."""
        self._data = [] if payload is None else [payload]
        self._size = len(payload or b"")
        self._name = name
        self._begun = payload is not None or bool(name)
        self._waits = self._waits or self._begun

    def _behind_what_waits(self, data: bytes) -> bytes:
        """Whole lines and the beginning of another one, with the beginning that came before; empty if no line ends."""
        if not data:
            return data
        if self._after_cr:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if self._line:
            found = _LINE_END.search(data)
            self._hold(data[: found.end()] if found else data)
            if not found:
                return b""
            data = b"".join((*self._line, data[found.end() :]))
            self._line, self._line_size = [], 0
        self._waits = self._begun
        return data

    def _wait(self, last: int, lines: list[bytes]) -> None:
        """The end of the last line waits for more, or for the second half of its end."""
        self._waits = True
        if last == _CR:
            self._after_cr = True
        else:
            self._hold(lines.pop())

    def _feed_slowly(self, lines: list[bytes]) -> Sequence[Event]:
        """The events that lines complete, whatever these are."""
        data = b"\n".join((*lines, b""))
        if b"\n:" in data or data.startswith(b":"):
            data = _COMMENT.sub(b"", data)
        if b"\n\n\n" in data:
            data = _EMPTY_LINES.sub(b"\n\n", data)
        events: list[Event] = []
        if self._begun and data:
            data = self._go_on(data, events)
        *blocks, rest = data.split(b"\n\n")
        for block in filter(None, blocks):
            self._take(block, events)
            self._end(events)
        if rest:
            self._take(rest, events)
        self._waits = self._waits or self._begun
        return events

    def begin(self) -> None:
        """Another stream follows, which goes on behind ``last_id``: what was not complete comes again."""
        self._line, self._line_size, self._after_cr = [], 0, False
        self._end([])

    def _hold(self, part: bytes) -> None:
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
                self._take_line(line.removeprefix(_BOM), events)
                self._begun = True

    def _take_line(self, line: bytes, events: list[Event]) -> None:
        if line.startswith(_JSON):
            line = b"data:" + line
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                if value.startswith(b"data:"):
                    value = value[5:].removeprefix(b" ")
                if self._data and _is_apart(self._data[-1].rstrip(), value):
                    self._end(events, split=True)
                self._add(value)
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
            case _ if self._data and self._data[0].startswith(_JSON) and not _is_apart(self._data[-1].rstrip(), line):
                self._add(line)
            case _ if (meant := field.strip().lower()) != field and meant in _FIELDS:
                self._take_line(meant + b":" + value, events)
            case _:
                self.foreign = True

    def _add(self, value: bytes) -> None:
        """Another line of data."""
        self._data.append(value)
        self._size += len(value) + 6
        self._check()

    def _end(self, events: list[Event], *, split: bool = False) -> None:
        """The event is complete; with ``split`` although no empty line says so."""
        if data := b"\n".join(self._data):
            name = self._name if split else self._later_name or self._name
            events.append((data, name, self._id))
        self._name = self._later_name if split else b""
        self._later_name = b""
        self._data, self._id, self._size, self._begun = [], None, 0, False


def _is_apart(before: bytes, line: bytes) -> bool:
    """Tell whether ``line`` can be no part of the JSON that ends with the line ``before``: two values in a row."""
    line = line.lstrip()
    return bool(line) and before.endswith(_VALUE_ENDS) and not line.startswith(_GOES_ON)
