"""Following the answer of a run: from its start, or from an answer to it on."""

from __future__ import annotations

from collections.abc import Sequence

from api.kit.projections import ProjectedStream, ProjectionOutlet
from palaver import operations
from palaver.events import DELTAS as DELTA_KINDS
from palaver.events import EventKind
from palaver.operations import Backend, StoredEvent
from palaver.schemas.models import Run

from .chunks import DELTAS, DONE, HEADERS, NO_DELTA, Chunk, DeltaFrame, written
from .projection import ChatProjection


class FollowedAnswer:
    """The answer of a run as frames: all of it, or only what came of the client's own answers to it."""

    def __init__(self, machine: ChatProjection, edge: int = 0, answered: frozenset[str] = frozenset()) -> None:
        """``answered`` are the actions and the calls that the client has answered: it has all before that. If they were
        settled otherwise it goes on behind the event ``edge``, which is the newest that there was."""
        self._machine = machine
        self._edge = edge
        self._answered = answered
        self._muted = bool(answered)
        self._frame = NO_DELTA
        """The frame of the delta that was asked for last."""
        self._held: list[Chunk] | None = None
        """The chunks since the run began to wait for one of these answers: others may have answered before, which the
        client was not told. To be told twice of a result changes nothing."""

    @property
    def over(self) -> bool:
        """True once the last frame was made."""
        return self._machine.over

    def take(self, events: Sequence[StoredEvent]) -> bytes:
        """Return the frames of these events."""
        if not events:
            return written(self._machine.silence())
        frames: list[bytes] = []
        for event in events:
            frame = self.at_once(event)
            if frame is not None:
                self._machine.note(frame)
                frames.append(frame)
            elif chunks := self._heard(event, self._machine.chunks(event)):
                frames.append(written(chunks))
        return b"".join(frames)

    def at_once(self, event: StoredEvent) -> DeltaFrame | None:
        """Return the frame of a delta that only goes on with the part that is open."""
        if self._muted or event.type not in DELTA_KINDS:
            return None
        frame = self._frame = DELTAS.of(event)
        return frame if frame.place is not None and frame.place == self._machine.goes_on else None

    def passed(self, event: StoredEvent) -> None:
        """Note that the frame of this delta was sent."""
        self._machine.note(self._frame)

    def _heard(self, event: StoredEvent, chunks: list[Chunk]) -> list[Chunk]:
        """Return those of the chunks that the client has not."""
        if not self._muted:
            return chunks
        if event.type == EventKind.CHILD_ACTION_RESOLVED and self._is_answered(event):
            self._muted = False
            return chunks
        if self._held is None:
            if event.type == EventKind.RUN_REQUIRES_ACTION and self._machine.awaits(self._answered):
                self._held = []
        else:
            self._held += chunks
            if event.type == EventKind.ACTION_RESOLVED and self._is_answered(event):
                self._muted = False
                return self._held
        if event.seq >= self._edge or self.over:
            self._muted = False
            return chunks[-1:] if self.over else []
        return []

    def _is_answered(self, event: StoredEvent) -> bool:
        data = event.data
        return not self._answered.isdisjoint((data["action_id"], data["call_id"]))


def stream_of(backend: Backend, run: Run, answered: frozenset[str] = frozenset()) -> ProjectedStream:
    """Return the response that follows the answer of a run. There is room for a watcher."""
    edge = run.last_event_id
    machine = ChatProjection(run.id, client_tools=frozenset(tool.name for tool in run.agent.client_tools), edge=edge)
    answer = FollowedAnswer(machine, edge, answered)
    way = ProjectionOutlet(answer)
    batches = operations.follow(backend, run.id, include="reasoning", pass_on=way.pass_on)
    opening = written([machine.opening()])
    return ProjectedStream(batches, answer, backend.closing, way, HEADERS, opening=opening, closing_frame=DONE)
