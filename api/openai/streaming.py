"""The stream of a response: its events as they come, from the first one or behind any other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import orjson

from palaver.errors import Refused
from palaver.events import EventKind
from palaver.schemas.models import Run

from .. import operations
from ..headers import EVENT_STREAM
from ..operations import Backend, StoredEvent
from ..streams import EventStream, Outlet
from .ids import ResponseId
from .projection import LIFECYCLE, Projection, Shown
from .states import read_response, response_object, status_of
from .tables import ResponseStatus

_KEEP_ALIVE: Final = b": ka\n\n"
"""No event of these streams has an id: clients take a comment behind one for an event without data."""
_PAGE: Final = 500
_BEGUN: Final = {"response.created": ResponseStatus.QUEUED, "response.queued": ResponseStatus.QUEUED}
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


def frame(kind: str, number: int, fields: Any) -> bytes:
    """Return an event on the wire."""
    data = orjson.dumps({"type": kind, "sequence_number": number, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


class ProjectedOutlet(Outlet):
    """The way of deltas to a client that has all before them."""

    def __init__(self, projection: Projection) -> None:
        super().__init__(StoredEvent.to_json)
        self._projection = projection

    def pass_on(self, event: StoredEvent) -> bool:
        """Send a delta at once, if that can be; tell whether it was."""
        shown = None if self.connection is None else self._projection.tail(event)
        if (
            shown is None
            or self.connection is None
            or not self.connection.write_chunk(frame(shown.type, shown.number, shown.fields))
        ):
            return False
        self._projection.take(shown)
        return True


class ResponseStream:
    """What a client is sent of a response."""

    def __init__(self, backend: Backend, response: ResponseId, run: Run) -> None:
        self._backend = backend
        self._response = response
        self._run = run
        self._projection = Projection(response, run.agent)
        self._missed: list[Shown] = []
        self._reached = 0
        self._last = -1

    async def go_behind(self, number: int) -> None:
        """Begin behind the event of that number.

        Raises:
            Refused: ``invalid_cursor``; there is none, or what is behind it is not known any more.
        """
        self._last = number
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

    def answer(self) -> EventStream:
        """Return the answer that sends it."""
        outlet = ProjectedOutlet(self._projection)
        return EventStream(self._frames(outlet), self._backend.closing, {"Cache-Control": "no-cache"}, outlet=outlet)

    async def _frames(self, outlet: Outlet) -> AsyncGenerator[bytes, None]:
        projection = self._projection
        if self._missed:
            yield await self._written(self._missed)
        if projection.done:
            return
        batches = operations.follow(self._backend, self._run.id, self._reached, "reasoning", pass_on=outlet.pass_on)
        async with aclosing(batches):
            async for events in batches:
                shown = list[Shown]()
                for event in events:
                    if event.type == EventKind.STREAM_REWOUND:
                        lost = {"code": "server_error", "message": _LOST, "param": None}
                        yield await self._written(shown) + frame("error", self._last + 1, lost)
                        return
                    shown += projection.read(event)
                    if projection.done:
                        break
                if shown or not events:
                    yield await self._written(shown) or _KEEP_ALIVE
                if projection.done:
                    return

    async def _written(self, events: list[Shown]) -> bytes:
        written = bytearray()
        for number, kind, fields in events:
            self._last = number
            carried = {"response": await self._as_of(kind)} if kind in LIFECYCLE else fields
            written += frame(kind, number, carried)
        return bytes(written)

    async def _as_of(self, kind: str) -> dict[str, Any]:
        """Return the response as an event of that type has it. What it is at the end is read: by then it is final."""
        if not self._projection.done or kind in _BEGUN or kind == "response.in_progress":
            return response_object(self._response, self._run, _BEGUN.get(kind, ResponseStatus.IN_PROGRESS))
        run, projection = await read_response(self._backend, self._response)
        return response_object(self._response, run, status_of(run, projection), projection)
