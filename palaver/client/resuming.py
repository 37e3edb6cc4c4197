"""A cursor in a run's events that lasts over as many connections as it takes. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import ClassVar, Final

from palaver.client import backoff
from palaver.client.answers import MAX_ANSWER, Response, event_of, unexpected
from palaver.client.errors import APIError, ClientError, NotFound
from palaver.client.requests import conversations, runs
from palaver.client.requests.request import Request
from palaver.events import ConversationDeleted, Event, EventKind, StreamRewound
from palaver.incoming.event_stream import EventParser, EventTooLong
from palaver.schemas.models import Run

SILENCE: Final = 45.0
"""Seconds without a byte after which a connection counts as dead: three of the server's keep-alives."""
RECONNECT: Final = 1.0
"""Seconds before a reconnect, unless the server says ``retry:``."""
_PIECE: Final = 64 * 1024
"""Bytes that are looked at in one go: what was compressed comes in larger ones."""
OUTAGE: Final = 300.0
"""Seconds without a byte, once connected, after which the stream gives up."""


def pieces(chunk: bytes) -> Iterator[bytes]:
    """Yield what came, in pieces that are short enough for a loop."""
    return (chunk[start : start + _PIECE] for start in range(0, len(chunk), _PIECE))


class EventCursor:
    """A place in a run's events: those that were shown, and when to try again for the rest."""

    _LAST: ClassVar[EventKind] = EventKind.RUN_FINISHED
    """The kind of the last event."""

    def __init__(self, run_id: str, after: int) -> None:
        self.position = after
        """The sequence number of the last event that was shown."""
        self.finished = False
        """Nothing comes any more."""
        self.progress = False
        """True if this connection brought anything new."""
        self._id = run_id
        self._after = after
        self._reconnect = RECONNECT
        self._failures = 0
        self._ever_connected = False
        self._down_since: float | None = None
        self._head = Response(0, {})
        self._parser = EventParser(MAX_ANSWER)

    def request(self, include: str | None) -> Request:
        """For what follows."""
        return runs.follow_run(self._id, self.position, include)

    def connected(self, head: Response) -> None:
        """A connection answered with ``head``.

        Raises:
            APIError: that is no stream of events.
        """
        self._head, self._parser = head, EventParser(MAX_ANSWER)
        if head.status == 204:
            self.finished = True
        elif "html" in head.headers.get("content-type", "").lower():
            # A page, of whatever is there. Else what comes says whether it is events: labels get lost on the way.
            raise unexpected(head)
        self._ever_connected = True

    def read(self, chunk: bytes) -> Iterator[Event]:
        """The events that ``chunk`` completes and that are new.

        Raises:
            APIError: they are not events, or there is no end to one.
        """
        self._failures, self._down_since = 0, None
        try:
            frames = self._parser.feed(chunk)
        except EventTooLong:
            raise unexpected(self._head) from None
        for data, _, frame_id in frames:
            event = event_of(data, self._head)
            if not self._takes(None if frame_id is None else frame_id.decode(), event):
                continue
            self.finished = event.type == self._LAST
            yield event
            if self.finished:
                return
        if self._parser.retry is not None:
            self._reconnect = self._parser.retry

    def _takes(self, frame_id: str | None, event: Event) -> bool:
        """Tell whether the event is new. From now on it is not."""
        if isinstance(event, StreamRewound):
            self.position = min(self.position, event.first - 1)
        elif frame_id:
            if event.seq <= self.position:
                return False
            self.position, self.progress = event.seq, True
        return True

    def event_for(self, error: ClientError) -> Event | None:
        """Return the event to show when ``error`` says that the server does not know the position any more, which was
        its own."""
        if self.position <= self._after or not isinstance(error, APIError) or error.code != "invalid_cursor":
            return None
        last = self.position
        self.position, self._after, self.progress = 0, 0, True
        return StreamRewound(run_id=self._id, seq=0, at=datetime.now(UTC), first=1, last=last)

    def doubt(self) -> Request | None:
        """For the run, to ``look`` at it, if the stream ended without anything new."""
        return None if self.progress or self.finished else runs.get_run(self._id)

    def look(self, run: Run) -> None:
        """If all of it was shown before, no last event comes any more."""
        self.finished = run.status.terminal and run.last_event_id == self.position

    def pause(self, error: ClientError | None) -> float:
        """Seconds to wait before the next connection; ``error`` ended the last one, or prevented it.

        Raises:
            ClientError: ``error``, if that will not pass, or has lasted for too long.
        """
        self._failures += 1
        now = time.monotonic()
        down_since = self._down_since = now if self._down_since is None else self._down_since
        gone = now - down_since > OUTAGE if self._ever_connected else self._failures > backoff.RETRIES
        if error is not None and gone:
            raise error
        wait = backoff.bearable(self._failures, error)
        progress, self.progress = self.progress, False
        if progress:
            return self._reconnect
        return max(self._reconnect, wait) if self._ever_connected else wait


class ConversationCursor(EventCursor):
    """A place in the events of a conversation. The server tells nothing twice behind an id."""

    _LAST = EventKind.CONVERSATION_DELETED

    def __init__(self, conversation_id: str, after: str) -> None:
        super().__init__(conversation_id, _position(after))
        self.place = after
        """The id of the last event that was shown."""

    def request(self, include: str | None) -> Request:
        """For what follows."""
        return conversations.follow_conversation(self._id, self.place, include)

    def _takes(self, frame_id: str | None, event: Event) -> bool:
        if isinstance(event, StreamRewound) and event.seq == 0:
            self.place = str(event.first - 1)
        elif frame_id:
            self.place, self.progress = frame_id, True
        self.position = _position(self.place)
        return True

    def event_for(self, error: ClientError) -> Event | None:
        """Return the event to show when ``error`` says that the conversation, which was there, is gone, or that the
        server does not know the place any more, which it has known."""
        if not self._ever_connected or not isinstance(error, APIError):
            return None
        if isinstance(error, NotFound):
            self.finished = True
            return ConversationDeleted(run_id="", seq=0, at=datetime.now(UTC), position=self.position)
        if error.code != "invalid_cursor" or not self.position:
            return None
        last = self.position
        self.position, self.place, self.progress = 0, "0", True
        return StreamRewound(run_id="", seq=0, at=datetime.now(UTC), first=1, last=last, position=0)

    def doubt(self) -> Request | None:
        """None: the stream ends with the conversation, and asking for more says that it is gone."""
        return None


def _position(place: str) -> int:
    position = place.partition(".")[0]
    return int(position) if position.isdecimal() else 0
