"""The events of one response as they are written: their numbers, the items of its output, and the texts that grow.

What was shown of an attempt that failed stays as an item that is incomplete, and is no part of the output. The next
attempt is another item.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from api.kit import run_changes as changes
from api.kit.projections import ViewProjection, WrittenDelta
from api.kit.run_changes import Change
from api.kit.run_view import RunView
from palaver.events import EventKind
from palaver.operations import StoredEvent

from .ids import ResponseId
from .items import text_in
from .shown import FORMS, SPREAD, TEXTS, OpenText, ShownEvent

BEGINS: Final = 3
ENDED: Final = 6
"""Places among the events that a message becomes: the first of its text, if that was not shown before, and the end of
it."""


class ResponseWriter(ViewProjection[ShownEvent]):
    """The events of a response, one event of its run after the other. What belongs to another part of the run is
    numbered alike, and left out; with ``every`` it is written as that of the response that has it."""

    deltas: ClassVar = TEXTS

    def __init__(self, response: ResponseId, *, every: bool = False) -> None:
        super().__init__(RunView(edge=math.inf, text_in=text_in))
        self.response = response
        self.part = -1
        """The part of the run that the events have come to; -1 before the first event."""
        self.mine = False
        """True while the run is at this response."""
        self.output: list[dict[str, Any]] = []
        """Items that are whole, or that an end has cut off."""
        self.last = -1
        """The number of the last event that was shown."""
        self.shown: list[ShownEvent] = []
        """The events that the run's present one has become."""
        self._every = every
        self._seq = self._last_seq = self._place = self._base = self._index = 0
        self._in_message = False
        self._texts: dict[str, OpenText] = {}
        """Those that more may come of, by the kind of their part: a text stays one over the thoughts in it."""
        self._growing: OpenText
        self._opened: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    @property
    def current(self) -> ResponseId:
        """The response that the events have come to."""
        return ResponseId(self.response.run_id, max(self.part, 0))

    def take_up(self, event: StoredEvent) -> None:
        """Go on to the next event of the run."""
        self._seq, self._place, self.shown = event.begins, 0, []
        self._last_seq, self._in_message = event.seq, event.type == EventKind.MESSAGE_CREATED

    def _shown(self, changes: Sequence[Change]) -> list[ShownEvent]:
        for change in changes:
            if (row := self.rows.get(type(change))) is not None:
                row(self, change)
        return self.shown

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
        """Write an event, if it is one of this response."""
        if self.mine:
            self.last = (self._seq - self._base) * SPREAD + self._place
            self._place += 1
            self.shown.append(ShownEvent(self.last, kind, fields))

    def go_to(self, place: int) -> None:
        """Go on at a place of the event that does not depend on what came before it: what is gone by then, such as
        deltas, does not move the numbers."""
        self._place = max(self._place, place)

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
        if kept and self.mine:
            self.output.append(item)
        self.show("response.output_item.done", output_index=index, item=item)

    def seq_of(self, number: int) -> int | None:
        """Return the number of the run's event that an event of the response belongs to; None before the response has
        begun."""
        return self._base + number // SPREAD if self.part >= self.response.part else None

    # Texts and thoughts.

    def framed(self, delta: WrittenDelta) -> bytes | None:
        """Return the frame of a delta that only adds to what is open; None if that is not of this response."""
        if not self.mine:
            return None
        self._growing = opened = self._texts[delta.place.kind]
        if delta.made[0] != opened.key:
            delta.made = opened.key, opened.framed((delta.event.seq - self._base) * SPREAD, delta.frame)
        return delta.made[1]

    def passed(self) -> None:
        """Note that the frame that was asked for last was sent at once."""
        super().passed()
        delta = self._latest
        self._growing.pieces.append(delta.text)
        self.last = (delta.event.seq - self._base) * SPREAD

    def _opened_part(self, change: changes.PartOpened) -> None:
        kind, step = change.part.kind, change.part.step
        if kind == "text":
            self.close("reasoning", "completed", kept=True)
            if self._in_message:
                self.go_to(BEGINS)
        if kind not in self._texts:
            form = FORMS[kind]
            self._texts[kind] = opened = OpenText(form, self.next_index(), self._fresh_id(form.kind, step))
            item = form.item(opened.id, None, "in_progress")
            self.show("response.output_item.added", output_index=opened.index, item=item)
            self.show(f"{form.part}.added", **opened.place, part=form.part_of(""))

    def _grown(self, change: changes.PartGrown) -> None:
        opened = self._texts[change.part.kind]
        opened.pieces.append(change.text)
        if self._last_seq != self._seq:
            # Of deltas that were joined it has the number that the last of them would have by itself.
            self._seq, self._place = self._last_seq, 0
        if self._in_message and change.part.kind == "text":
            self.go_to(ENDED - 1)
        self.show(f"{opened.form.text}.delta", **opened.place, delta=change.text, **opened.form.more)

    def close(self, kind: str, status: str, text: str | None = None, *, kept: bool) -> None:
        """Close what is open of a kind; all of it is ``text``, if that is known."""
        opened = self._texts.pop(kind, None)
        if opened is None:
            return
        form, text = opened.form, "".join(opened.pieces) if text is None else text
        self.show(f"{form.text}.done", **opened.place, text=text, **form.more)
        self.show(f"{form.part}.done", **opened.place, part=form.part_of(text))
        self.whole(opened.index, form.item(opened.id, text, status), kept=kept)

    def discard(self, change: Change | None = None) -> None:
        """Close what is open: it is not to be part of the conversation."""
        self.close("reasoning", "incomplete", kept=False)
        self.close("text", "incomplete", kept=False)

    def _attempt_failed(self, change: changes.AttemptFailed) -> None:
        self._failed[change.step] += 1

    def _fresh_id(self, kind: str, step: str) -> str:
        """Return the id of an item of an attempt. It follows from the log, but where an attempt is made again that did
        not fail."""
        failed = self._failed[step]
        item_id = self.id_of(kind, step, *([f"f{failed}"] if failed else []))
        self._opened[item_id] += 1
        again = self._opened[item_id]
        return f"{item_id}_again{again - 1}" if again > 1 else item_id
