"""The stream of a response: its events as they come, from the first one or behind any other."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from api.http.headers import EVENT_STREAM
from api.kit.projections import DeltaOutlet
from api.kit.streams import EventStream, Outlet
from palaver import operations
from palaver.errors import Refused
from palaver.events import EventKind
from palaver.operations import Backend, StoredEvent
from palaver.schemas.models import Run

from .ids import ResponseId
from .projection import ResponseProjection
from .shown import BEGUN, FINAL, KEEP_ALIVE, QUIET, ShownEvent, frame
from .states import read_response, response_object, status_of

_PAGE: Final = 500
_LOST: Final = "The server has lost events that were sent before: retrieve the response, which has what is true now."
STREAMS: Final = {
    EVENT_STREAM: {
        "schema": {
            "description": "Each event of the stream; `data` is JSON with its `type` and `sequence_number`.",
            "type": "object",
            "required": ["event", "data"],
            "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
        },
        "example": 'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{}}\n\n',
    }
}


class ResponseEvents(EventStream):
    """The answer that is the stream of a response.

    Clients take the end of the body for the end of the response. What breaks off before that, as the process ends, is
    cut, so that they know, and go on behind the last event that they have.
    """

    def __init__(self, backend: Backend, response: ResponseId, run: Run) -> None:
        self._backend = backend
        self._response = response
        self._run = run
        self._projection = ResponseProjection(response, run.agent)
        self._missed: list[ShownEvent] = []
        self._reached = 0
        self._over = False
        self._sent = time.monotonic()
        outlet = DeltaOutlet(self._projection)
        super().__init__(self._written_out(outlet), backend.closing, outlet=outlet)

    @property
    def whole(self) -> bool:
        """True if the client was sent all of it."""
        return self._over

    async def go_behind(self, number: int) -> None:
        """Begin behind the event of that number.

        Raises:
            Refused: ``invalid_cursor``; there is none, or what is behind it is not known any more.
        """
        projection = self._projection
        more = True
        while more:
            page = await operations.read_events(self._backend, self._run.id, self._reached, _PAGE, "reasoning")
            for event in page.events:
                wanted = projection.seq_of(number)
                if wanted is not None and self._reached < wanted < event.seq:
                    why = "The deltas behind this event are gone. Stream from the beginning, or retrieve the response."
                    raise Refused("invalid_cursor", why, run_id=self._run.id)
                self._reached = event.seq
                self._missed = [shown for shown in projection.read(event) if shown.number > number]
                if self._missed or projection.done:
                    return
            more = page.more and bool(page.events)
        wanted = projection.seq_of(number)
        if not projection.begun or wanted is None or wanted > self._reached:
            raise Refused("invalid_cursor", "The response has not come so far.", run_id=self._run.id)

    async def _written_out(self, outlet: Outlet) -> AsyncGenerator[bytes, None]:
        projection = self._projection
        async for written in self._on_wire(self._missed):
            yield written
        if not projection.done:
            batches = operations.follow(self._backend, self._run.id, self._reached, "reasoning", pass_on=outlet.pass_on)
            async with aclosing(batches):
                async for events in batches:
                    shown = self._shown(events)
                    async for written in self._on_wire(shown):
                        yield written
                    quiet = not shown and (not events or time.monotonic() - self._sent > QUIET)
                    if quiet:
                        yield KEEP_ALIVE
                    if shown or quiet:
                        self._sent = time.monotonic()
                    if projection.done or self._over:
                        break
        self._over |= projection.done

    def _shown(self, events: Sequence[StoredEvent]) -> list[ShownEvent]:
        """Return what the next events of the run are in the response."""
        shown = list[ShownEvent]()
        for event in events:
            if event.type == EventKind.STREAM_REWOUND:
                self._over = True
                lost = {"code": "server_error", "message": _LOST, "param": None}
                return [*shown, ShownEvent(self._projection.last + 1, "error", lost)]
            shown += self._projection.read(event)
            if self._projection.done:
                break
        return shown

    async def _on_wire(self, events: Sequence[ShownEvent]) -> AsyncGenerator[bytes, None]:
        """Write events; those before the end do not wait until the response was read."""
        written = bytearray()
        for number, kind, fields in events:
            carried = fields
            if kind in FINAL:
                if written:
                    yield bytes(written)
                written.clear()
                # What it is at the end is read: by now it is final.
                run, projection = await read_response(self._backend, self._response)
                carried = {"response": response_object(self._response, run, status_of(run, projection), projection)}
            elif kind in BEGUN:
                carried = {"response": response_object(self._response, self._run, BEGUN[kind])}
            written += frame(number, kind, carried)
        if written:
            yield bytes(written)
