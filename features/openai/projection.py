"""The projection of a run's events to those of a response: a pure function of the events before, and nothing else.

Numbers. An event of the run that has the number ``seq`` becomes up to `SPREAD` events here, and these are numbered from
``(seq - base) * SPREAD`` on; ``base`` is the number of the response's first event, which is 0 here. So the number of an
event is the same whenever and wherever it is read, though deltas may be joined or gone by then: it is known from the
log alone.

Items. What was shown of an answer that a worker lost, or that is tried again, stays as an item that is incomplete, and
is no part of the output. The next attempt is another item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from palaver.events import EventKind
from palaver.operations import StoredEvent
from palaver.schemas.arguments import as_json
from palaver.schemas.mcp_servers import own_label
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.lifecycle import RunStatus

from .growing import GrowingItems
from .ids import ResponseId
from .items import approval_item, approval_response_item, function_item, input_items, output_item, server_item, text_in
from .shown import SPREAD, CallBegun, ShownEvent
from .tables import EVENTS
from .writing import ResponseWriter

_CALLS, _OF_CALL, _LAST = 10, 4, SPREAD - 1
"""Places among the events that a message becomes: the first of its calls, and how many one of them has; and that of the
end of a response."""
_ENDS: Final[Mapping[str, str]] = {
    RunStatus.COMPLETED: "response.completed",
    RunStatus.INCOMPLETE: "response.incomplete",
    RunStatus.FAILED: "response.failed",
    RunStatus.CANCELLED: "response.incomplete",
    RunStatus.EXPIRED: "response.failed",
}
"""The last event of a response by the status of its run. There is none for a cancelled one: its status says so."""


class ResponseProjection:
    """The events of one response, made of those of its run, which come in order from the first one on; with ``every``
    those of all responses that the run is."""

    def __init__(self, response: ResponseId, agent: AgentSpec, *, every: bool = False) -> None:
        self._agent = agent
        self._labels = tuple(agent.mcp_servers)
        self._by_client = {tool.name for tool in agent.client_tools}
        self._makers: dict[str, Callable[[StoredEvent, Mapping[str, Any]], None]] = {
            kind: getattr(self, f"_{part}") for kind, part in EVENTS.items() if part
        }
        self._out = ResponseWriter(response, every=every)
        self.growing = GrowingItems(self._out)
        """The items that grow: it tells what a delta is that only adds to one."""
        self._interrupted_at = -1
        self._calls: dict[str, CallBegun] = {}
        self._requests: dict[str, str] = {}
        """The items that ask for approvals, by the ids of their actions."""
        self.input: list[dict[str, Any]] = []
        """The items that the client sent for it."""
        self.waiting = True
        """True if it has ended, and the next one has not begun."""
        self.over = False
        """True if the run has ended."""

    @property
    def part(self) -> int:
        """The part of the run that the events have come to; -1 before the first event."""
        return self._out.part

    @property
    def output(self) -> list[dict[str, Any]]:
        """Items that are whole, or that an end has cut off."""
        return self._out.output

    @property
    def last(self) -> int:
        """The number of the last event that was shown."""
        return self._out.last

    @property
    def done(self) -> bool:
        """True if the response is whole: nothing more comes of it."""
        return self.has_ended(self._out.response.part)

    def has_ended(self, part: int) -> bool:
        """Tell whether a part of the run is whole."""
        return self.part > part or (self.part == part and self.waiting)

    @property
    def ended_by_call(self) -> bool:
        """True if it is whole, and ends with calls that the client answers or has answered."""
        return self.done and self._interrupted_at == self._out.response.part

    @property
    def begun(self) -> bool:
        """True if there is such a response."""
        return self.part >= self._out.response.part

    def read(self, event: StoredEvent, thoughts: str = "") -> list[ShownEvent]:
        """Take the next event, and return what it is here. ``thoughts`` are those before a message, where they are not
        among the events."""
        make = self._makers.get(event.type)
        if make is None:
            return []
        self._out.take_up(event)
        data = event.data
        if self.waiting and self.part >= 0:
            if not _is_answer(event, data):
                self.over |= event.type == EventKind.RUN_FINISHED
                return []
            self._begin()
        if thoughts and self._of_model(data):
            self.growing.think(data["step"], 0, thoughts)
        make(event, data)
        return self._out.shown

    def seq_of(self, number: int) -> int | None:
        """Return the number of the run's event that an event of the response belongs to; None before the response has
        begun."""
        return self._out.seq_of(number)

    # The parts of a run.

    def _created(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._begin()

    def _begin(self) -> None:
        self._out.begin_part()
        self.waiting = False
        self._out.show("response.created")
        self._out.show("response.in_progress" if self._out.response.part else "response.queued")

    def _started(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if self.part == 0:
            self._out.show("response.in_progress")

    def _interrupted(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if self._out.mine:
            self._interrupted_at = self.part
        self._end("response.completed")

    def _finished(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._end(_ENDS[data["status"]])
        self.over = True

    def _end(self, kind: str) -> None:
        self.growing.discard()
        for call in self._calls.values():
            if call.index is not None:
                self._close_call(call, "incomplete", None)
        self._out.go_to(_LAST)
        self._out.show(kind)
        self.waiting = True

    # Texts, messages and calls.

    def _text_part(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self.growing.say(event, data)

    def _thought_part(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self.growing.think(data["step"], data["attempt"], data["text"], event)

    def _discarded(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self.growing.discard()

    def _attempt_failed(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if "/" not in data["step"]:
            self.growing.fail(data["step"])

    @staticmethod
    def _of_model(data: Mapping[str, Any]) -> bool:
        return data.get("step") is not None and data.get("message", {}).get("role") == "assistant"

    def _message(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if not self._of_model(data):
            if self._out.mine and not data.get("nudge"):
                self.input += input_items(f"{self._out.response.tail}_i{event.seq}", data["message"])
            return
        message, step = data["message"], data["step"]
        text, status = text_in(message), "incomplete" if message.get("partial") else "completed"
        self.growing.complete(step, text, status)
        calls, refused = message.get("tool_calls", ()), set(data.get("refused_calls") or ())
        risky = set(data.get("risky_calls") or ())
        for place, asked in enumerate(calls):
            if asked["id"] in refused and not self._runs(asked["name"]):
                # The model was told of its slip, which is no call of a server that the client knows, nor one to answer.
                continue
            call = {**asked, "arguments": as_json(asked["arguments"])}
            self._out.go_to(_CALLS + _OF_CALL * place)
            by_client = call["name"] in self._by_client
            kind = "fc" if by_client else "mcp"
            made = self._calls[call["id"]] = CallBegun(call, (kind, step, place), by_client)
            if by_client:
                self._function(made)
            elif call["id"] in refused or not self._agent.approvals.ask(
                call["name"], risky=call["id"] in risky, alone=len(calls) == 1
            ):
                self._open_call(made)

    def _runs(self, tool: str) -> bool:
        """Tell whether a tool would be one of the agent's servers, or of this one, of which it has tools."""
        return tool not in self._by_client and (bool(self._agent.tools) or own_label(self._labels, tool) is not None)

    def _function(self, made: CallBegun) -> None:
        index, call = self._out.next_index(), made.call
        self._out.show(
            "response.output_item.added",
            output_index=index,
            item=function_item(self._out.id_of(*made.named), call, "in_progress"),
        )
        place = {"item_id": self._out.id_of(*made.named), "output_index": index}
        self._out.show("response.function_call_arguments.delta", **place, delta=call["arguments"])
        self._out.show("response.function_call_arguments.done", **place, name=call["name"], arguments=call["arguments"])
        self._out.whole(index, function_item(self._out.id_of(*made.named), call, "completed"))

    def _open_call(self, made: CallBegun) -> None:
        made.index = index = self._out.next_index()
        place = {"item_id": self._out.id_of(*made.named), "output_index": index}
        self._out.show("response.output_item.added", output_index=index, item=self._server_item(made, "in_progress"))
        self._out.show("response.mcp_call_arguments.delta", **place, delta=made.call["arguments"])
        self._out.show("response.mcp_call_arguments.done", **place, arguments=made.call["arguments"])
        self._out.show("response.mcp_call.in_progress", **place)

    def _close_call(self, made: CallBegun, status: str, output: str | None) -> None:
        index, made.index = made.index, None
        if index is None:
            return
        if status != "incomplete":
            self._out.show(f"response.mcp_call.{status}", item_id=self._out.id_of(*made.named), output_index=index)
        self._out.whole(index, self._server_item(made, status, output))

    def _server_item(self, made: CallBegun, status: str, output: str | None = None) -> dict[str, Any]:
        return server_item(self._out.id_of(*made.named), self._labels, made.call, status, output, made.request)

    def _tool_result(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        message = data["message"]
        made = self._calls.pop(message["call_id"], None)
        if made is None or made.by_client:
            if made is not None and self._out.mine and self._out.response.part:
                self.input.append(output_item(self._out.id_of(*made.named), message))
            return
        if made.index is None:
            self._open_call(made)
        self._out.go_to(_OF_CALL)
        self._close_call(made, "failed" if message.get("is_error") else "completed", text_in(message))

    def _action(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        action = data["action"]
        if action["type"] == "approval":
            item, index = approval_item(action, self._out.current, self._labels), self._out.next_index()
            self._requests[action["id"]] = item["id"]
            self._out.show("response.output_item.added", output_index=index, item=item)
            self._out.whole(index, item)

    def _decision(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        made = self._calls.get(data["call_id"])
        request = self._requests.get(data["action_id"])
        if made is None or request is None:
            return
        made.request = request
        if self._out.mine:
            self.input.append(approval_response_item(request, data))
        if data["decision"] == "edit":
            made.call = {**made.call, "arguments": data["arguments"]}
        if data["decision"] in ("approve", "edit") and made.index is None:
            self._open_call(made)


def _is_answer(event: StoredEvent, data: Mapping[str, Any]) -> bool:
    """Tell whether a run that waits goes on with an event."""
    return event.type == EventKind.ACTION_RESOLVED and data["decision"] != "cancelled"
