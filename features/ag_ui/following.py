"""Following a run as AG-UI: from its start, or from an answer to it on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from api.kit.projections import KEEP_ALIVE, ProjectionOutlet
from api.kit.streams import EventStream
from palaver import operations
from palaver.events import DELTAS as DELTA_KINDS
from palaver.operations import Backend, Batches, Caller, StoredEvent
from palaver.schemas.models import Run

from .frames import DELTAS, AgDelta, AgEvent, written
from .messages import results_in, said_in, snapshot_of
from .projection import RunProjection
from .wire import RunAgentInput

Snapshot = Callable[[int], Awaitable[AgEvent | None]]
"""A function that shows the messages that there are up to an event of the run."""
_HEADERS: Final = {"Cache-Control": "no-cache"}


class FollowedRun:
    """A run as frames: all of it, or what came of the client's own answers to it."""

    def __init__(self, machine: RunProjection, edge: int) -> None:
        self._machine = machine
        self._edge = edge
        self._held: list[AgEvent] = []
        """What came since the run began to wait: the client has it, unless its answer comes."""

    @property
    def over(self) -> bool:
        """True once the last frame was made."""
        return self._machine.over

    def take(self, events: Sequence[StoredEvent]) -> bytes:
        """Return the frames of these events."""
        return b"".join(self.pieces(events))

    def pieces(self, events: Sequence[StoredEvent]) -> Iterator[bytes]:
        """Yield the frames of each of these events; of a silence, if there are none."""
        if not events:
            yield written(self._machine.silence())
        for event in events:
            yield self._piece(event)

    def at_once(self, event: StoredEvent) -> AgDelta | None:
        """Return the frame of a delta that only goes on with the message that is open."""
        if event.type not in DELTA_KINDS or not self._machine.interrupts.answered:
            return None
        frame = DELTAS.of(event)
        return frame if self._machine.goes_on(frame) else None

    def passed(self, event: StoredEvent) -> None:
        """Note that the frame of this delta was sent."""
        self._machine.note(DELTAS.of(event))

    def _piece(self, event: StoredEvent) -> bytes:
        frame = self.at_once(event)
        if frame is not None:
            self._machine.note(frame)
            return frame
        waited, answered = self._machine.interrupts.waiting, self._machine.interrupts.answered
        made = self._machine.read(event)
        if answered:
            return written(made)
        self._machine.wants_snapshot = False
        if self._machine.interrupts.answered:
            return written([*self._held, *made])
        self._held = [] if self._machine.interrupts.waiting and not waited else [*self._held, *made]
        if event.seq >= self._edge or self.over:
            # It was settled otherwise.
            self._machine.interrupts.answered = True
            return written(made[-1:] if self.over else [])
        return b""


class AgUiStream(EventStream):
    """Sends a run of AG-UI. Clients take the end of the body for the end of the run: what breaks off before is cut."""

    def __init__(
        self,
        batches: Batches,
        followed: FollowedRun,
        machine: RunProjection,
        closing: asyncio.Event,
        outlet: ProjectionOutlet,
        opening: Sequence[AgEvent],
        snapshot: Snapshot,
    ) -> None:
        frames = _frames(batches, followed, machine, written(opening), snapshot)
        super().__init__(frames, closing, _HEADERS, outlet=outlet)
        self._machine = machine

    @property
    def whole(self) -> bool:
        """True if the client was sent all of it."""
        return self._machine.over


async def _frames(
    batches: Batches, followed: FollowedRun, machine: RunProjection, opening: bytes, snapshot: Snapshot
) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches):
        yield opening
        async for events in batches:
            said = False
            for piece in followed.pieces(events):
                if machine.wants_snapshot:
                    machine.wants_snapshot = False
                    shown = await snapshot(machine.reached)
                    piece = piece if shown is None else _before_the_end(piece, written([shown]), machine.over)
                if piece:
                    said = True
                    yield piece
                if machine.over:
                    return
            if not said:
                yield KEEP_ALIVE


def _before_the_end(piece: bytes, shown: bytes, over: bool) -> bytes:
    """Return the frames of an event with a snapshot behind them, but before the last one of the run."""
    if not over:
        return piece + shown
    frames = piece.removesuffix(b"\n\n").split(b"\n\n")
    return b"".join(frame + b"\n\n" for frame in frames[:-1]) + shown + frames[-1] + b"\n\n"


async def stream_of(
    backend: Backend,
    caller: Caller,
    body: RunAgentInput,
    run: Run,
    *,
    answers: frozenset[str] = frozenset(),
    again: bool = False,
) -> AgUiStream:
    """Return the response that follows a run; behind these ``answers`` to it, if there are any, and all of it behind a
    snapshot if the client comes ``again``. There is room for a watcher. A key that may not read has the run alone, and
    nothing else of the thread.

    Raises:
        StoreUnavailable: the snapshot took too long.
    """
    edge = run.last_event_id
    said = said_in(body.messages)
    reads = caller.scopes is None or "runs:read" in caller.scopes
    before = None
    if again and reads:
        before = await snapshot_of(backend, run.conversation_id, said, before=(run.id, 0))
    machine = RunProjection(
        body.threadId,
        body.runId,
        run.id,
        edge=edge,
        answers=frozenset() if again else answers,
        # A snapshot takes from the client what it had of the run.
        known=results_in(body.messages) if before is None else frozenset(),
    )
    followed = FollowedRun(machine, edge)
    opening = [machine.opening(), *([] if before is None else [before])]

    async def snapshot(reached: int) -> AgEvent | None:
        # The log may have more already, which the client is told of by what comes behind.
        return await snapshot_of(backend, run.conversation_id, said, before=(run.id, reached)) if reads else None

    way = ProjectionOutlet(followed)
    batches = operations.follow(backend, run.id, include="reasoning", pass_on=way.pass_on)
    return AgUiStream(batches, followed, machine, backend.closing, way, opening, snapshot)
