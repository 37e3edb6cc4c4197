"""The projection of a run's events to those of a response: a pure function of the events before, and nothing else.

Numbers. An event of the run that has the number ``seq`` becomes up to `SPREAD` events here, and these are numbered from
``(seq - base) * SPREAD`` on; ``base`` is the number of the response's first event, which is 0 here. So the number of an
event is the same whenever and wherever it is read, though deltas may be joined or gone by then: it is known from the
log alone.

Items. What was shown of an answer that a worker lost, or that is tried again, stays as an item that is incomplete, and
is no part of the output. The next attempt is another item.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from palaver.events import EventKind
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.lifecycle import RunStatus

from ..operations import StoredEvent
from .ids import ResponseId
from .items import (
    approval_item,
    approval_response_item,
    function_item,
    input_items,
    output_item,
    reasoning_item,
    server_item,
    summary_part,
    text_in,
    text_item,
    text_part,
)
from .shown import LATEST, SPREAD, CallBegun, OpenText, ShownEvent, text_delta, thought_delta
from .tables import EVENTS

_BEGINS, _ENDED, _CALLS, _OF_CALL, _LAST = 3, 6, 10, 4, SPREAD - 1
"""Places among the events that a message becomes: the first of its text, if that was not shown before, the end of it,
the first of its calls, and how many one of them has; and that of the end of a response."""
_ENDS: Final[Mapping[str, str]] = {
    RunStatus.COMPLETED: "response.completed",
    RunStatus.INCOMPLETE: "response.incomplete",
    RunStatus.FAILED: "response.failed",
    RunStatus.CANCELLED: "response.incomplete",
    RunStatus.EXPIRED: "response.failed",
}
"""The last event of a response by the status of its run. There is none for a cancelled one: its status says so."""


class ResponseProjection:
    """The events of one response, made of those of its run, which come in order from the first one on."""

    def __init__(self, response: ResponseId, agent: AgentSpec) -> None:
        self._response = response
        self._agent = agent
        self._by_client = {tool.name for tool in agent.client_tools}
        self._makers: dict[str, Callable[[StoredEvent, Mapping[str, Any]], None]] = {
            kind: getattr(self, f"_{part}") for kind, part in EVENTS.items() if part
        }
        self._shown: list[ShownEvent] = []
        self._seq = self._place = self._base = 0
        self._index = 0
        self._interrupted_at = -1
        self._text: OpenText | None = None
        self._thought: OpenText | None = None
        self._opened: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._calls: dict[str, CallBegun] = {}
        self._requests: set[str] = set()
        """Ids of actions that were asked for as approvals."""
        self.output: list[dict[str, Any]] = []
        """Items that are whole, or that an end has cut off."""
        self.input: list[dict[str, Any]] = []
        """The items that the client sent for it."""
        self.last = -1
        """The number of the last event that was shown."""
        self.part = -1
        """The part of the run that the events have come to; -1 before the first event."""
        self.waiting = True
        """True if it has ended, and the next one has not begun."""
        self.over = False
        """True if the run has ended."""

    @property
    def done(self) -> bool:
        """True if the response is whole: nothing more comes of it."""
        return self.has_ended(self._response.part)

    def has_ended(self, part: int) -> bool:
        """Tell whether a part of the run is whole."""
        return self.part > part or (self.part == part and self.waiting)

    @property
    def ended_by_call(self) -> bool:
        """True if it is whole, and ends with calls that the client answers or has answered."""
        return self.done and self._interrupted_at == self._response.part

    @property
    def begun(self) -> bool:
        """True if there is such a response."""
        return self.part >= self._response.part

    def read(self, event: StoredEvent, thoughts: str = "") -> list[ShownEvent]:
        """Take the next event, and return what it is here. ``thoughts`` are those before a message, where they are not
        among the events."""
        make = self._makers.get(event.type)
        if make is None:
            return []
        self._seq, self._place, self._shown = event.begins, 0, []
        data = event.data
        if self.waiting and self.part >= 0:
            if not _is_answer(event, data):
                self.over |= event.type == EventKind.RUN_FINISHED
                return []
            self._begin()
        if thoughts and self._of_model(data):
            self._think(data["step"], 0, thoughts)
        make(event, data)
        return self._shown

    def tail(self, event: StoredEvent) -> ShownEvent | None:
        """Return what a delta is that only adds to what is open; None for any other event, which is for ``read``. If it
        was sent, ``take`` has to be told."""
        of_text = self._thought is None
        opened = self._text if of_text else self._thought
        if opened is None or event.type != (EventKind.MESSAGE_DELTA if of_text else EventKind.REASONING_DELTA):
            return None
        data = LATEST.of(event)
        if data["step"] != opened.step or data["attempt"] != opened.attempt or not self._mine:
            return None
        number = (event.seq - self._base) * SPREAD
        if of_text:
            return ShownEvent(number, "response.output_text.delta", text_delta(opened, data["text"]))
        return ShownEvent(number, "response.reasoning_summary_text.delta", thought_delta(opened, data["text"]))

    def take(self, shown: ShownEvent) -> None:
        """Take the delta that ``tail`` has returned, as it was sent."""
        opened = self._text if self._thought is None else self._thought
        if opened is not None:
            opened.pieces.append(shown.fields["delta"])
            self.last = shown.number

    def seq_of(self, number: int) -> int | None:
        """Return the number of the run's event that an event of the response belongs to; None before the response has
        begun."""
        return self._base + number // SPREAD if self.begun else None

    # The parts of a run.

    def _created(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._begin()

    def _begin(self) -> None:
        self.part += 1
        self.waiting = False
        self._index = 0
        if self._mine:
            self._base = self._seq
            self._show("response.created")
            self._show("response.in_progress" if self._response.part else "response.queued")

    @property
    def _mine(self) -> bool:
        return self.part == self._response.part

    def _show(self, kind: str, **fields: Any) -> None:
        if self._mine:
            self.last = (self._seq - self._base) * SPREAD + self._place
            self._shown.append(ShownEvent(self.last, kind, fields))
            self._place += 1

    def _at(self, place: int) -> None:
        """Go on at a place of the event that does not depend on what came before it: what is gone by then, such as
        deltas, does not move the numbers."""
        self._place = max(self._place, place)

    def _started(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if self.part == 0:
            self._show("response.in_progress")

    def _interrupted(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if self._mine:
            self._interrupted_at = self.part
        self._end("response.completed")

    def _finished(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._end(_ENDS[data["status"]])
        self.over = True

    def _end(self, kind: str) -> None:
        self._discard()
        for call in self._calls.values():
            if call.index is not None:
                self._close_call(call, "incomplete", None)
        self._at(_LAST)
        self._show(kind)
        self.waiting = True

    # Texts and thoughts.

    def _text_begins(self, step: str, attempt: int) -> OpenText:
        opened = OpenText(self._next(), self._fresh_id("msg", step), step, attempt)
        self._show(
            "response.output_item.added", output_index=opened.index, item=text_item(opened.id, None, "in_progress")
        )
        self._show("response.content_part.added", **opened.place, content_index=0, part=text_part(""))
        return opened

    def _text_part(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        step, attempt = data["step"], data["attempt"]
        if self._text is not None and (self._text.step, self._text.attempt) != (step, attempt):
            self._discard()
        self._end_thought("completed")
        if self._text is None:
            self._text = self._text_begins(step, attempt)
        self._text.pieces.append(data["text"])
        self._to_last(event)
        self._show("response.output_text.delta", **text_delta(self._text, data["text"]))

    def _thought_part(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._think(data["step"], data["attempt"], data["text"], event)

    def _think(self, step: str, attempt: int, text: str, event: StoredEvent | None = None) -> None:
        if self._thought is not None and (self._thought.step, self._thought.attempt) != (step, attempt):
            self._discard()
        if self._thought is None:
            self._thought = opened = OpenText(self._next(), self._fresh_id("rs", step), step, attempt)
            item = reasoning_item(opened.id, None, "in_progress")
            self._show("response.output_item.added", output_index=opened.index, item=item)
            self._show("response.reasoning_summary_part.added", **opened.place, summary_index=0, part=summary_part(""))
        self._thought.pieces.append(text)
        if event is not None:
            self._to_last(event)
        self._show("response.reasoning_summary_text.delta", **thought_delta(self._thought, text))

    def _to_last(self, event: StoredEvent) -> None:
        """Go on to the number of the last of the deltas that an event stands for: so it has the number that this one
        would have by itself."""
        if event.seq != self._seq:
            self._seq, self._place = event.seq, 0

    def _end_thought(self, status: str) -> None:
        thought, self._thought = self._thought, None
        if thought is None:
            return
        text = thought.text
        self._show("response.reasoning_summary_text.done", **thought.place, summary_index=0, text=text)
        self._show("response.reasoning_summary_part.done", **thought.place, summary_index=0, part=summary_part(text))
        self._whole(thought.index, reasoning_item(thought.id, text, status), kept=status == "completed")

    def _end_text(self, text: str, status: str, *, kept: bool) -> None:
        opened, self._text = self._text, None
        if opened is None:
            return
        place = {**opened.place, "content_index": 0}
        self._show("response.output_text.done", **place, text=text, logprobs=[])
        self._show("response.content_part.done", **place, part=text_part(text))
        self._whole(opened.index, text_item(opened.id, text, status), kept=kept)

    def _discard(self) -> None:
        """Close what is open: it is not to be part of the conversation."""
        self._end_thought("incomplete")
        if self._text is not None:
            self._end_text(self._text.text, "incomplete", kept=False)

    def _discarded(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._discard()

    def _attempt_failed(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        step = data["step"]
        if "/" not in step:
            self._discard()
            self._failed[step] += 1

    # Messages and calls.

    @staticmethod
    def _of_model(data: Mapping[str, Any]) -> bool:
        return data.get("step") is not None and data.get("message", {}).get("role") == "assistant"

    def _message(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if not self._of_model(data):
            if self._mine and not data.get("nudge"):
                self.input += input_items(f"{self._response.tail}_{event.seq}", data["message"])
            return
        message, step = data["message"], data["step"]
        text, status = text_in(message), "incomplete" if message.get("partial") else "completed"
        self._end_thought("completed")
        if self._text is not None and self._text.step != step:
            self._discard()
        if text and self._text is None:
            self._at(_BEGINS)
            self._text = self._text_begins(step, 0)
            self._show("response.output_text.delta", **text_delta(self._text, text))
        self._at(_ENDED)
        self._end_text(text, status, kept=True)
        calls, refused = message.get("tool_calls", ()), set(data.get("refused_calls") or ())
        risky = set(data.get("risky_calls") or ())
        for place, call in enumerate(calls):
            self._at(_CALLS + _OF_CALL * place)
            by_client = call["name"] in self._by_client and call["id"] not in refused
            kind = "fc" if by_client else "mcp"
            made = self._calls[call["id"]] = CallBegun(call, self._id(kind, step, place), by_client)
            if by_client:
                self._function(made)
            elif call["id"] in refused or not self._agent.approvals.ask(
                call["name"], risky=call["id"] in risky, alone=len(calls) == 1
            ):
                self._open_call(made)

    def _function(self, made: CallBegun) -> None:
        index, call = self._next(), made.call
        self._show("response.output_item.added", output_index=index, item=function_item(made.item, call, "in_progress"))
        place = {"item_id": made.item, "output_index": index}
        self._show("response.function_call_arguments.delta", **place, delta=call["arguments"])
        self._show("response.function_call_arguments.done", **place, name=call["name"], arguments=call["arguments"])
        self._whole(index, function_item(made.item, call, "completed"))

    def _open_call(self, made: CallBegun) -> None:
        made.index = index = self._next()
        place = {"item_id": made.item, "output_index": index}
        item = server_item(made.item, made.call, "in_progress", request=made.request)
        self._show("response.output_item.added", output_index=index, item=item)
        self._show("response.mcp_call_arguments.done", **place, arguments=made.call["arguments"])
        self._show("response.mcp_call.in_progress", **place)

    def _close_call(self, made: CallBegun, status: str, output: str | None) -> None:
        index, made.index = made.index, None
        if index is None:
            return
        if status != "incomplete":
            self._show(f"response.mcp_call.{status}", item_id=made.item, output_index=index)
        self._whole(index, server_item(made.item, made.call, status, output, made.request))

    def _tool_result(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        message = data["message"]
        made = self._calls.pop(message["call_id"], None)
        if made is None or made.by_client:
            if made is not None and self._mine and self._response.part:
                self.input.append(output_item(made.item, message))
            return
        if made.index is None:
            self._open_call(made)
        self._at(_OF_CALL)
        self._close_call(made, "failed" if message.get("is_error") else "completed", text_in(message))

    def _action(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        action = data["action"]
        if action["type"] == "approval":
            self._requests.add(action["id"])
            item, index = approval_item(action), self._next()
            self._show("response.output_item.added", output_index=index, item=item)
            self._whole(index, item)

    def _decision(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        made = self._calls.get(data["call_id"])
        if made is None or data["action_id"] not in self._requests:
            return
        made.request = data["action_id"]
        if self._mine:
            self.input.append(approval_response_item(data))
        if data["decision"] == "edit":
            made.call = {**made.call, "arguments": data["arguments"]}
        if data["decision"] in ("approve", "edit") and made.index is None:
            self._open_call(made)

    def _next(self) -> int:
        index = self._index
        self._index += 1
        return index

    def _id(self, kind: str, *parts: object) -> str:
        return "_".join((kind, self._response.tail, *map(str, parts)))

    def _fresh_id(self, kind: str, step: str) -> str:
        """Return the id of an item of an attempt. It follows from the log, but where an attempt is made again that did
        not fail."""
        failed = self._failed[step]
        item_id = self._id(kind, step, *([failed] if failed else []))
        self._opened[item_id] += 1
        again = self._opened[item_id]
        return f"{item_id}_again{again - 1}" if again > 1 else item_id

    def _whole(self, index: int, item: dict[str, Any], *, kept: bool = True) -> None:
        self._show("response.output_item.done", output_index=index, item=item)
        if kept and self._mine:
            self.output.append(item)


def _is_answer(event: StoredEvent, data: Mapping[str, Any]) -> bool:
    """Tell whether a run that waits goes on with an event."""
    return event.type == EventKind.ACTION_RESOLVED and data["decision"] != "cancelled"
