"""Texts and thoughts of a response: the items that grow while a model answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from palaver.events import EventKind
from palaver.operations import StoredEvent

from .items import reasoning_item, summary_part, text_item, text_part
from .shown import LATEST, SHARED, OpenText, ShownEvent, frame, text_delta, thought_delta
from .writing import ResponseWriter

_BEGINS, _ENDED = 3, 6
"""Places among the events that a message becomes: the first of its text, if that was not shown before, and the end of
it."""


class GrowingItems:
    """The text and the thought that more may come of. What was shown of an attempt that failed stays as an item that is
    incomplete."""

    def __init__(self, writer: ResponseWriter) -> None:
        self._out = writer
        self._text: OpenText | None = None
        self._thought: OpenText | None = None
        self._opened: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def at_once(self, event: StoredEvent) -> bytes | None:
        """Return the frame of a delta that only adds to what is open; None for any other event. If it was sent,
        ``passed`` has to be told."""
        opened = self._text if self._thought is None else self._thought
        if opened is None or not self._out.mine:
            return None
        # A hundred watchers of a response ask for the same.
        if SHARED.event is not event or SHARED.key != opened.key:
            shown = self._tail(event, opened)
            SHARED.event, SHARED.key, SHARED.shown = event, opened.key, shown
            SHARED.frame = None if shown is None else frame(*shown)
        return SHARED.frame

    def passed(self, event: StoredEvent) -> None:
        """Note that the frame of this delta, which was asked for last, was sent."""
        opened, shown = self._text if self._thought is None else self._thought, SHARED.shown
        if opened is not None and shown is not None:
            opened.pieces.append(shown.fields["delta"])
            self._out.last = shown.number

    def _tail(self, event: StoredEvent, opened: OpenText) -> ShownEvent | None:
        of_text = self._thought is None
        if event.type != (EventKind.MESSAGE_DELTA if of_text else EventKind.REASONING_DELTA):
            return None
        data = LATEST.of(event)
        if data["step"] != opened.step or data["attempt"] != opened.attempt:
            return None
        number = self._out.number_of(event.seq)
        if of_text:
            return ShownEvent(number, "response.output_text.delta", text_delta(opened, data["text"]))
        return ShownEvent(number, "response.reasoning_summary_text.delta", thought_delta(opened, data["text"]))

    def _text_begins(self, step: str, attempt: int) -> OpenText:
        opened = OpenText(self._out.next_index(), self._fresh_id("msg", step), step, attempt)
        self._out.show(
            "response.output_item.added", output_index=opened.index, item=text_item(opened.id, None, "in_progress")
        )
        self._out.show("response.content_part.added", **opened.place, content_index=0, part=text_part(""))
        return opened

    def say(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        """Take more of a text."""
        step, attempt = data["step"], data["attempt"]
        if self._text is not None and (self._text.step, self._text.attempt) != (step, attempt):
            self.discard()
        self._end_thought("completed")
        if self._text is None:
            self._text = self._text_begins(step, attempt)
        self._text.pieces.append(data["text"])
        self._out.go_to_last(event)
        self._out.show("response.output_text.delta", **text_delta(self._text, data["text"]))

    def think(self, step: str, attempt: int, text: str, event: StoredEvent | None = None) -> None:
        """Take more of a thought; of all of it at once there is no ``event``."""
        if self._thought is not None and (self._thought.step, self._thought.attempt) != (step, attempt):
            self.discard()
        if self._thought is None:
            self._thought = opened = OpenText(self._out.next_index(), self._fresh_id("rs", step), step, attempt)
            item = reasoning_item(opened.id, None, "in_progress")
            self._out.show("response.output_item.added", output_index=opened.index, item=item)
            self._out.show(
                "response.reasoning_summary_part.added", **opened.place, summary_index=0, part=summary_part("")
            )
        self._thought.pieces.append(text)
        if event is not None:
            self._out.go_to_last(event)
        self._out.show("response.reasoning_summary_text.delta", **thought_delta(self._thought, text))

    def _end_thought(self, status: str) -> None:
        thought, self._thought = self._thought, None
        if thought is None:
            return
        text = thought.text
        self._out.show("response.reasoning_summary_text.done", **thought.place, summary_index=0, text=text)
        self._out.show(
            "response.reasoning_summary_part.done", **thought.place, summary_index=0, part=summary_part(text)
        )
        self._out.whole(thought.index, reasoning_item(thought.id, text, status), kept=status == "completed")

    def _end_text(self, text: str, status: str, *, kept: bool) -> None:
        opened, self._text = self._text, None
        if opened is None:
            return
        place = {**opened.place, "content_index": 0}
        self._out.show("response.output_text.done", **place, text=text, logprobs=[])
        self._out.show("response.content_part.done", **place, part=text_part(text))
        self._out.whole(opened.index, text_item(opened.id, text, status), kept=kept)

    def discard(self) -> None:
        """Close what is open: it is not to be part of the conversation."""
        self._end_thought("incomplete")
        if self._text is not None:
            self._end_text(self._text.text, "incomplete", kept=False)

    def fail(self, step: str) -> None:
        """Close what an attempt of a step has shown: the next one is another item."""
        self.discard()
        self._failed[step] += 1

    def complete(self, step: str, text: str, status: str) -> None:
        """Close the text of a step, which is whole; one that was not shown comes at once."""
        self._end_thought("completed")
        if self._text is not None and self._text.step != step:
            self.discard()
        if text and self._text is None:
            self._out.go_to(_BEGINS)
            self._text = self._text_begins(step, 0)
            self._out.show("response.output_text.delta", **text_delta(self._text, text))
        self._out.go_to(_ENDED)
        self._end_text(text, status, kept=True)

    def _fresh_id(self, kind: str, step: str) -> str:
        """Return the id of an item of an attempt. It follows from the log, but where an attempt is made again that did
        not fail."""
        failed = self._failed[step]
        item_id = self._out.id_of(kind, step, *([f"f{failed}"] if failed else []))
        self._opened[item_id] += 1
        again = self._opened[item_id]
        return f"{item_id}_again{again - 1}" if again > 1 else item_id
