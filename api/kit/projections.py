"""A run's events on the wire of another protocol: each watcher has a view of the run, and a table of how it looks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Final, Generic, TypeVar

import orjson

from palaver import operations
from palaver.events import DELTAS, EventKind
from palaver.late import dataclass
from palaver.operations import Backend, Batches, StoredEvent
from palaver.schemas.models import Run

from ..http.client_connection import ClientConnection
from .run_changes import Change, ShownPart
from .run_view import KINDS, RunView
from .streams import EventStream, Outlet

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment for clients and proxies, while nothing comes."""
Item = dict[str, Any]
"""An event or a chunk of a dialect, as JSON has it: what there is nothing to say about is not there."""
F = TypeVar("F")
_NOWHERE: Final = ShownPart("", "", None)


def written(items: Iterable[Item]) -> bytes:
    """Return items as they are on the wire."""
    return b"".join(b"data: %b\n\n" % orjson.dumps(item) for item in items)


@dataclass(slots=True, eq=False)
class WrittenDelta:
    """A delta as a dialect writes it, once for all who watch its run."""

    event: StoredEvent
    data: Mapping[str, Any]
    place: ShownPart
    """The part that it is more of."""
    text: str
    frame: bytes
    raw: bytes
    """The text in UTF-8, if it is text of the answer; and how many letters that are."""
    length: int
    made: tuple[object, bytes] = (None, b"")
    """The frame made of it for one place, and that: many watchers have the same."""


class WrittenDeltas:
    """Deltas as a dialect writes them. The last one is kept: all who watch a run ask for it together."""

    def __init__(self, write_part: Callable[[str, ShownPart, str], bytes]) -> None:
        """``write_part`` makes the frame of the run's id, the part and the text."""
        self._write_part = write_part
        self._last: WrittenDelta | None = None

    def of(self, event: StoredEvent) -> WrittenDelta:
        """Return a delta."""
        last = self._last
        if last is not None and last.event is event:
            return last
        data = event.data
        text, kind = data["text"], KINDS[event.type]
        part = ShownPart(kind, data["step"], data["attempt"])
        frame, said = self._write_part(event.run_id, part, text), text if kind == "text" else ""
        # One without text is more of nothing.
        place = part if text else _NOWHERE
        self._last = last = WrittenDelta(event, data, place, text, frame, said.encode(), len(said))
        return last


class ViewProjection(Generic[F]):
    """A run as the clients of a dialect are shown it."""

    rows: ClassVar[Mapping[type[Change], Callable[[Any, Any], Any]]]
    """The items that a change becomes. Of others clients have no word."""
    deltas: ClassVar[WrittenDeltas]

    def __init__(self, view: RunView) -> None:
        self.view = view
        self._muted = False
        """True while the client has all that there is."""
        self._latest: WrittenDelta

    def read(self, event: StoredEvent) -> list[F]:
        """Return what an event is, up to the end of the run or the place where it waits for an action."""
        return self._shown(self.view.read(event, self.data_of(event)))

    def data_of(self, event: StoredEvent) -> Mapping[str, Any]:
        """Return the payload of an event; that of a delta is parsed once for all."""
        return self.deltas.of(event).data if event.type in DELTAS else event.data

    def at_once(self, event: StoredEvent) -> bytes | None:
        """Return the frame of a delta that only goes on with what was sent, and changes nothing before ``passed``;
        None for any other event."""
        if self._muted or event.type not in DELTAS:
            return None
        self._latest = delta = self.deltas.of(event)
        return self.framed(delta) if delta.place == self.view.goes_on else None

    def framed(self, delta: WrittenDelta) -> bytes | None:
        """Return the frame of such a delta; None if something else comes with it."""
        return delta.frame

    def passed(self) -> None:
        """Note that the frame that was asked for last was sent at once."""
        self.view.text.add(self._latest.length, self._latest.raw)

    def _shown(self, changes: Sequence[Change]) -> list[F]:
        rows = self.rows
        return [item for change in changes if type(change) in rows for item in rows[type(change)](self, change)]


class FollowedProjection(ViewProjection[Item]):
    """A run that a client follows: all of it, or only what came of the client's own answers to it."""

    def __init__(self, view: RunView, answers: frozenset[str] = frozenset()) -> None:
        """``answers`` are ids of actions and of calls: the client has all before them. If they were settled otherwise
        it goes on behind the edge of the view, the newest event that there was."""
        super().__init__(view)
        self._answers = answers
        self._muted = bool(answers)
        self._held: list[Item] | None = None
        """What came since the run began to wait for one of these answers: others may have answered before, which the
        client was not told. To be told twice of a result changes nothing."""

    def pieces(self, events: Sequence[StoredEvent]) -> Iterator[bytes]:
        """Yield the frames of each of these events. A silence, if there are none, is an end at the latest for a run
        that waits for an action."""
        if not events:
            yield written(self._shown(self.view.silence()))
        for event in events:
            frame = self.at_once(event)
            if frame is not None:
                self.passed()
                yield frame
            elif self._muted or event.type not in DELTAS:
                yield written(self._heard(event, self.read(event)))
            else:
                told, more = self.view.read(event, self._latest.data), b""
                if self.view.goes_on is not None:
                    # Its own frame is there, behind what it opens and closes.
                    more = self._latest.frame
                    told.pop()
                yield written(self._shown(told)) + more

    def _heard(self, event: StoredEvent, items: list[Item]) -> list[Item]:
        """Return those of the items that the client has not."""
        if not self._muted:
            return items
        view = self.view
        view.wants_text = False
        if self._held is not None:
            self._held += items
        elif view.waiting and view.awaits(self._answers):
            self._held = []
        if self._is_answered(event) and (self._held is not None or event.type == EventKind.CHILD_ACTION_RESOLVED):
            self._muted = False
            return items if self._held is None else self._held
        if event.seq >= view.edge or view.over:
            self._muted = False
            return items[-1:] if view.over else []
        return []

    def _is_answered(self, event: StoredEvent) -> bool:
        if event.type not in (EventKind.ACTION_RESOLVED, EventKind.CHILD_ACTION_RESOLVED):
            return False
        data = event.data
        return not self._answers.isdisjoint((data["action_id"], data["call_id"]))


class DeltaOutlet(Outlet):
    """The way of single deltas to a client that has all before them."""

    def __init__(self, projection: ViewProjection[Any]) -> None:
        self._projection = projection
        self.connection: ClientConnection | None = None

    def pass_on(self, event: StoredEvent) -> bool:
        """Send a delta at once, if that can be; tell whether it was."""
        if self.connection is None:
            return False
        frame = self._projection.at_once(event)
        if frame is None or not self.connection.write_chunk(frame):
            return False
        self._projection.passed()
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
        backend: Backend,
        run: Run,
        projection: FollowedProjection,
        headers: Mapping[str, str],
        *,
        opening: Sequence[Item],
        closing_frame: bytes = b"",
        snapshot: Snapshot | None = None,
    ) -> None:
        outlet = DeltaOutlet(projection)
        batches = operations.follow(backend, run.id, include="reasoning", pass_on=outlet.pass_on)
        self._view = projection.view
        frames = _frames(batches, projection, written(opening), closing_frame, snapshot)
        super().__init__(frames, backend.closing, headers, outlet=outlet)

    @property
    def whole(self) -> bool:
        """True if the client was sent all of it."""
        return self._view.over


async def _frames(
    batches: Batches, projection: FollowedProjection, opening: bytes, closing_frame: bytes, snapshot: Snapshot | None
) -> AsyncGenerator[bytes, None]:
    view = projection.view
    async with aclosing(batches):
        yield opening
        async for events in batches:
            frames = bytearray()
            for piece in projection.pieces(events):
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
