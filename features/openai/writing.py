"""The events of one response as they are written: their numbers, and the items of its output."""

from __future__ import annotations

from typing import Any

from palaver.operations import StoredEvent

from .ids import ResponseId
from .shown import SPREAD, ShownEvent


class ResponseWriter:
    """The events of a response, one event of its run after the other. What belongs to another part of the run is
    numbered alike, and left out; with ``every`` it is written as that of the response that has it."""

    def __init__(self, response: ResponseId, *, every: bool = False) -> None:
        self.response = response
        self._every = every
        self._shown: list[ShownEvent] = []
        self._seq = self._place = self._base = 0
        self._index = 0
        self.part = -1
        """The part of the run that the events have come to; -1 before the first event."""
        self.mine = False
        """True while the run is at this response."""
        self.output: list[dict[str, Any]] = []
        """Items that are whole, or that an end has cut off."""
        self.last = -1
        """The number of the last event that was shown."""

    @property
    def current(self) -> ResponseId:
        """The response that the events have come to."""
        return ResponseId(self.response.run_id, max(self.part, 0))

    @property
    def shown(self) -> list[ShownEvent]:
        """The events that the run's present one has become."""
        return self._shown

    def take_up(self, event: StoredEvent) -> None:
        """Go on to the next event of the run."""
        self._seq, self._place, self._shown = event.begins, 0, []

    def begin_part(self) -> None:
        """Go on to the next part of the run."""
        self.part += 1
        self._index = 0
        if self._every:
            self.response = self.current
        self.mine = self.part == self.response.part
        if self.mine:
            self._base = self._seq

    def show(self, kind: str, **fields: Any) -> None:
        """Write an event."""
        if self.mine:
            self.last = self.number_of(self._seq) + self._place
            self._shown.append(ShownEvent(self.last, kind, fields))
            self._place += 1

    def go_to(self, place: int) -> None:
        """Go on at a place of the event that does not depend on what came before it: what is gone by then, such as
        deltas, does not move the numbers."""
        self._place = max(self._place, place)

    def go_to_last(self, event: StoredEvent) -> None:
        """Go on to the number of the last of the deltas that an event stands for: so it has the number that this one
        would have by itself."""
        if event.seq != self._seq:
            self._seq, self._place = event.seq, 0

    def next_index(self) -> int:
        """Return the place in the output of another item."""
        index = self._index
        self._index += 1
        return index

    def id_of(self, kind: str, *parts: object) -> str:
        """Return the id of an item."""
        return "_".join((kind, self.response.tail, *map(str, parts)))

    def whole(self, index: int, item: dict[str, Any], *, kept: bool = True) -> None:
        """Write that an item is whole; ``kept`` if it is a part of the output."""
        self.show("response.output_item.done", output_index=index, item=item)
        if kept and self.mine:
            self.output.append(item)

    def number_of(self, seq: int) -> int:
        """Return the first number of what an event of the run becomes."""
        return (seq - self._base) * SPREAD

    def seq_of(self, number: int) -> int | None:
        """Return the number of the run's event that an event of the response belongs to; None before the response has
        begun."""
        return self._base + number // SPREAD if self.part >= self.response.part else None
