"""A run's events on the wire of another protocol: each watcher has a view of the run, and a table of how it looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import orjson

from palaver.events import DELTAS, EventKind
from palaver.operations import Batches, StoredEvent

from ..http.client_connection import ClientConnection
from .run_changes import Change, ShownPart
from .run_view import KINDS, RunView
from .streams import EventStream, Frames, Outlet

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment for clients and proxies, while nothing comes."""
Item = dict[str, Any]
"""An event or a chunk of a dialect, as JSON has it: what there is nothing to say about is not there."""
F = TypeVar("F")
P = TypeVar("P", bound="ViewProjection[Item]")


def written(items: Iterable[Item]) -> bytes:
    """Return items as they are on the wire."""
    return b"".join(b"data: %b\n\n" % orjson.dumps(item) for item in items)


class DeltaFrame(bytes):
    """A delta on the wire, and what the view of a watcher has to know of it."""

    place: ShownPart | None
    """The part that it is more of. None if it says nothing."""
    text: str
    length: int
    raw: bytes
    """The text in UTF-8, if it is text of the answer; and how many letters that are."""


def delta_frames(write_part: Callable[[str, ShownPart, str], bytes]) -> Frames[StoredEvent, DeltaFrame]:
    """Return deltas as a dialect writes them, once for all who watch a run: of the run's id, the part and the text."""

    def write(event: StoredEvent) -> DeltaFrame:
        data = event.data
        part, text = ShownPart(KINDS[event.type], data["step"], data["attempt"]), data["text"]
        frame = DeltaFrame(write_part(event.run_id, part, text))
        frame.place, frame.text = part if text else None, text
        counted = text if part.kind == "text" else ""
        frame.length, frame.raw = len(counted), counted.encode()
        return frame

    return Frames(write)


class ViewProjection(Generic[F]):
    """A run as the clients of a dialect are shown it."""

    rows: ClassVar[Mapping[type[Change], Callable[[Any, Any], Iterable[Any]]]]
    """The items that a change becomes. Of others clients have no word."""

    def __init__(self, view: RunView) -> None:
        self.view = view

    def read(self, event: StoredEvent) -> list[F]:
        """Return what an event is, up to the end of the run or the place where it waits for an action."""
        return self._shown(self.view.read(event))

    def silence(self) -> list[F]:
        """Return what a silence is: a run that waits for an action ends at the latest then."""
        return self._shown(self.view.silence())

    def _shown(self, changes: Sequence[Change]) -> list[F]:
        rows = self.rows
        return [item for change in changes if type(change) in rows for item in rows[type(change)](self, change)]


class Followed(Generic[P]):
    """A run as frames: all of it, or only what came of the client's own answers to it."""

    def __init__(
        self, projection: P, deltas: Frames[StoredEvent, DeltaFrame], answers: frozenset[str] = frozenset()
    ) -> None:
        """``answers`` are ids of actions and of calls: the client has all before them. If they were settled otherwise
        it goes on behind the edge of the view, the newest event that there was."""
        self.projection, self.view = projection, projection.view
        self._deltas = deltas
        self._answers = answers
        self._muted = bool(answers)
        self._held: list[Item] | None = None
        """What came since the run began to wait for one of these answers: others may have answered before, which the
        client was not told. To be told twice of a result changes nothing."""

    def pieces(self, events: Sequence[StoredEvent]) -> Iterator[bytes]:
        """Yield the frames of each of these events; of a silence, if there are none."""
        if not events:
            yield written(self.projection.silence())
        for event in events:
            frame = self.at_once(event)
            if frame is not None:
                self.passed(event)
                yield frame
            else:
                yield written(self._heard(event, self.projection.read(event)))

    def at_once(self, event: StoredEvent) -> DeltaFrame | None:
        """Return the frame of a delta that only goes on with what was sent, and changes nothing before ``passed``; None
        for any other event."""
        if self._muted or event.type not in DELTAS:
            return None
        frame = self._deltas.of(event)
        return frame if frame.place is not None and frame.place == self.view.goes_on else None

    def passed(self, event: StoredEvent) -> None:
        """Note that the frame of this delta was sent at once."""
        frame = self._deltas.of(event)
        self.view.note(frame.length, frame.raw)

    def _heard(self, event: StoredEvent, items: list[Item]) -> list[Item]:
        """Return those of the items that the client has not."""
        if not self._muted:
            return items
        self.view.wants_text = False
        if self._held is not None:
            self._held += items
        elif self.view.waiting and self.view.awaits(self._answers):
            self._held = []
        if self._is_answered(event) and (self._held is not None or event.type == EventKind.CHILD_ACTION_RESOLVED):
            self._muted = False
            return items if self._held is None else self._held
        if event.seq >= self.view.edge or self.view.over:
            self._muted = False
            return items[-1:] if self.view.over else []
        return []

    def _is_answered(self, event: StoredEvent) -> bool:
        if event.type not in (EventKind.ACTION_RESOLVED, EventKind.CHILD_ACTION_RESOLVED):
            return False
        data = event.data
        return not self._answers.isdisjoint((data["action_id"], data["call_id"]))


class Growing(Protocol):
    """A text that a client is shown, and that goes on with the deltas of its run."""

    def at_once(self, event: StoredEvent) -> bytes | None:
        """Return the frame of a delta that only goes on with what was sent, and changes nothing before ``passed``; None
        for any other event."""

    def passed(self, event: StoredEvent) -> None:
        """Note that the frame of this delta was sent at once."""


class DeltaOutlet(Outlet):
    """The way of single deltas to a client that has all before them."""

    def __init__(self, growing: Growing) -> None:
        self._growing = growing
        self.connection: ClientConnection | None = None

    def pass_on(self, event: StoredEvent) -> bool:
        """Send a delta at once, if that can be; tell whether it was."""
        if self.connection is None:
            return False
        frame = self._growing.at_once(event)
        if frame is None or not self.connection.write_chunk(frame):
            return False
        self._growing.passed(event)
        return True


Snapshot = Callable[[int], Awaitable[Item | None]]
"""A function that shows all texts that there are up to an event of the run."""


class ViewStream(EventStream):
    """Sends a run as it is followed, from ``opening`` to ``closing_frame``.

    Clients of such wires take the end of the body for the end of the answer. So what breaks off before that, as the
    process ends or the store fails, is cut: they see that the connection is lost, and come back.
    """

    def __init__(
        self,
        batches: Batches,
        followed: Followed[Any],
        closing: asyncio.Event,
        outlet: DeltaOutlet,
        headers: Mapping[str, str],
        *,
        opening: Sequence[Item],
        closing_frame: bytes = b"",
        snapshot: Snapshot | None = None,
    ) -> None:
        frames = _frames(batches, followed, written(opening), closing_frame, snapshot)
        super().__init__(frames, closing, headers, outlet=outlet)
        self._view = followed.view

    @property
    def whole(self) -> bool:
        """True if the client was sent all of it."""
        return self._view.over


async def _frames(
    batches: Batches, followed: Followed[Any], opening: bytes, closing_frame: bytes, snapshot: Snapshot | None
) -> AsyncGenerator[bytes, None]:
    view = followed.view
    async with aclosing(batches):
        yield opening
        async for events in batches:
            frames = bytearray()
            for piece in followed.pieces(events):
                if view.wants_text and snapshot is not None:
                    view.wants_text = False
                    shown = await snapshot(view.reached)
                    piece = piece if shown is None else _before_the_end(piece, written([shown]), view.over)
                frames += piece
            if view.over:
                yield bytes(frames) + closing_frame
                return
            yield bytes(frames) or KEEP_ALIVE


def _before_the_end(piece: bytes, shown: bytes, over: bool) -> bytes:
    """Return the frames of an event with a snapshot behind them, but before the last one of the run."""
    if not over:
        return piece + shown
    frames = piece.removesuffix(b"\n\n").split(b"\n\n")
    return b"".join(frame + b"\n\n" for frame in frames[:-1]) + shown + frames[-1] + b"\n\n"
