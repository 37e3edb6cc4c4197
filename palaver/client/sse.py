"""Server-sent events, parsed without I/O: bytes in, frames out, however the bytes were split.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of the stream. ``id`` is None when this very event had none."""

    event: str
    data: str
    id: str | None


class SSEParser:
    """Feed it chunks; it answers with the frames they complete. An incomplete frame at the end is dropped."""

    def __init__(self) -> None:
        self.retry: float | None = None
        """Seconds to wait before a reconnect, once the server has named them."""
        self.pending = 0
        """Bytes of the event that is not complete yet."""
        self._partial: list[bytes] = []
        self._after_cr = False
        self._first_line = True
        self._data: list[str] = []
        self._event = ""
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that ``chunk`` completes."""
        if not chunk:
            return []
        self.pending += len(chunk)
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
            if not chunk:
                return []
        self._after_cr = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(chunk)
        frames: list[Frame] = []
        for line in lines:
            frame = self._line(b"".join((*self._partial, line)).decode(errors="replace"))
            self._partial.clear()
            if frame is not None:
                frames.append(frame)
        if rest:
            self._partial.append(rest)
            self.pending = max(self.pending, len(rest))
        return frames

    def _line(self, line: str) -> Frame | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit() and len(value) <= 9:
                self.retry = int(value) / 1000
        return None

    def _dispatch(self) -> Frame | None:
        frame = Frame(self._event or "message", "\n".join(self._data), self._id) if self._data else None
        self._data, self._event, self._id = [], "", None
        self.pending = 0
        return frame
