"""The projection of a run's events to those of a response: a table of what each change of the run is there.

Numbers. An event of the run that has the number ``seq`` becomes up to `SPREAD` events here, and these are numbered from
``(seq - base) * SPREAD`` on; ``base`` is the number of the response's first event, which is 0 here. So the number of an
event is the same whenever and wherever it is read, though deltas may be joined or gone by then: it is known from the
log alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from api.kit import run_changes as changes
from palaver.events import EventKind
from palaver.operations import StoredEvent
from palaver.schemas.arguments import as_json
from palaver.schemas.mcp_servers import own_label
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.lifecycle import RunStatus

from .ids import ResponseId
from .items import approval_item, approval_response_item, function_item, input_items, output_item, server_item, text_in
from .shown import SPREAD, CallBegun, ShownEvent
from .writing import ENDED, ResponseWriter

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


class ResponseProjection(ResponseWriter):
    """The events of one response, made of those of its run, which come in order from the first one on; with ``every``
    those of all responses that the run is."""

    def __init__(self, response: ResponseId, agent: AgentSpec, *, every: bool = False) -> None:
        super().__init__(response, every=every)
        self._agent = agent
        self._labels = tuple(agent.mcp_servers)
        self._by_client = {tool.name for tool in agent.client_tools}
        self._interrupted_at = -1
        self._calls: dict[tuple[str, str], CallBegun] = {}
        """Those without a result, by the model step and the id."""
        self.input: list[dict[str, Any]] = []
        """The items that the client sent for it."""
        self.waiting = True
        """True if it has ended, and the next one has not begun."""

    @property
    def over(self) -> bool:
        """True if the run has ended."""
        return self.view.over

    @property
    def done(self) -> bool:
        """True if the response is whole: nothing more comes of it."""
        return self.has_ended(self.response.part)

    def has_ended(self, part: int) -> bool:
        """Tell whether a part of the run is whole."""
        return self.part > part or (self.part == part and self.waiting)

    @property
    def ended_by_call(self) -> bool:
        """True if it is whole, and ends with calls that the client answers or has answered."""
        return self.done and self._interrupted_at == self.response.part

    @property
    def begun(self) -> bool:
        """True if there is such a response."""
        return self.part >= self.response.part

    def read(self, event: StoredEvent, thoughts: str = "") -> list[ShownEvent]:
        """Take the next event, and return what it is here. ``thoughts`` are those before a message, where they are not
        among the events."""
        self.take_up(event)
        data = self.data_of(event)
        if self.waiting:
            if not _begins(event, data):
                self.view.read(event, data)
                return self.shown
            self._begin()
        if event.type == EventKind.MESSAGE_CREATED and not _of_model(data):
            if self.mine and not data.get("nudge"):
                self.input += input_items(f"{self.response.tail}_i{event.seq}", data["message"])
            return self.shown
        return self._shown(self.view.read(event, {**data, "thoughts": thoughts} if thoughts else data))

    # The parts of a run.

    def _begin(self) -> None:
        self.begin_part()
        self.waiting = False
        self.show("response.created")
        self.show("response.in_progress" if self.response.part else "response.queued")

    def _moved(self, change: changes.StatusMoved) -> None:
        if change.kind == EventKind.RUN_STARTED and self.part == 0:
            self.show("response.in_progress")

    def _interrupted(self, change: changes.ActionNeeded) -> None:
        if self.mine:
            self._interrupted_at = self.part
        self._end("response.completed")

    def _finished(self, change: changes.RunEnded) -> None:
        self._end(_ENDS[change.data["status"]])

    def _end(self, kind: str) -> None:
        for call in self._calls.values():
            self._close_call(call, "incomplete", None)
        self.go_to(_LAST)
        self.show(kind)
        self.waiting = True

    # Messages and calls.

    def _answered(self, change: changes.MessageTold) -> None:
        data, message = change.data, change.data["message"]
        self.close("reasoning", "completed", kept=True)
        self.go_to(ENDED)
        status = "incomplete" if message.get("partial") else "completed"
        self.close("text", status, text_in(message["content"]), kept=True)
        calls, refused = message.get("tool_calls", ()), set(data.get("refused_calls") or ())
        risky = set(data.get("risky_calls") or ())
        for place, asked in enumerate(calls):
            by_client = asked["name"] in self._by_client
            if asked["id"] in refused and (by_client or not self._runs(asked["name"])):
                # The model was told of its slip, which is no call of a server that the client knows, nor one to answer.
                continue
            call = {**asked, "arguments": as_json(asked["arguments"])}
            self.go_to(_CALLS + _OF_CALL * place)
            named = ("fc" if by_client else "mcp", data["step"], place)
            made = self._calls[data["step"], call["id"]] = CallBegun(call, named, by_client)
            if by_client:
                self._function(made)
            elif call["id"] in refused or not self._agent.approvals.ask(
                call["name"], risky=call["id"] in risky, alone=len(calls) == 1
            ):
                self._open_call(made)

    def _runs(self, tool: str) -> bool:
        """Tell whether a tool would be one of the agent's servers, or of this one, of which it has tools."""
        return bool(self._agent.tools) or own_label(self._labels, tool) is not None

    def _function(self, made: CallBegun) -> None:
        index, call, item_id = self.next_index(), made.call, self.id_of(*made.named)
        item = function_item(item_id, call, "in_progress")
        self.show("response.output_item.added", output_index=index, item=item)
        place, arguments = {"item_id": item_id, "output_index": index}, call["arguments"]
        self.show("response.function_call_arguments.delta", **place, delta=arguments)
        self.show("response.function_call_arguments.done", **place, name=call["name"], arguments=arguments)
        self.whole(index, function_item(item_id, call, "completed"))

    def _open_call(self, made: CallBegun) -> None:
        made.index = index = self.next_index()
        place = {"item_id": self.id_of(*made.named), "output_index": index}
        self.show("response.output_item.added", output_index=index, item=self._server_item(made, "in_progress"))
        self.show("response.mcp_call_arguments.delta", **place, delta=made.call["arguments"])
        self.show("response.mcp_call_arguments.done", **place, arguments=made.call["arguments"])
        self.show("response.mcp_call.in_progress", **place)

    def _close_call(self, made: CallBegun, status: str, output: str | None) -> None:
        index, made.index = made.index, None
        if index is None:
            return
        if status != "incomplete":
            self.show(f"response.mcp_call.{status}", item_id=self.id_of(*made.named), output_index=index)
        self.whole(index, self._server_item(made, status, output))

    def _server_item(self, made: CallBegun, status: str, output: str | None = None) -> dict[str, Any]:
        return server_item(self.id_of(*made.named), self._labels, made.call, status, output, made.request)

    def _returned(self, change: changes.CallReturned) -> None:
        message, made = change.message, self._calls.pop((change.call.step, change.call.id), None)
        if made is None:
            return
        if made.by_client:
            if self.mine and self.response.part:
                self.input.append(output_item(self.id_of(*made.named), message))
            return
        if made.index is None:
            self._open_call(made)
        self.go_to(_OF_CALL)
        status = "failed" if message.get("is_error") else "completed"
        self._close_call(made, status, text_in(message["content"]))

    def _asked(self, change: changes.ActionAsked) -> None:
        made = self._calls.get((change.call.step, change.call.id))
        if made is None or change.action["type"] != "approval":
            return
        item, index = approval_item(change.action, self.current, self._labels), self.next_index()
        made.request = item["id"]
        self.show("response.output_item.added", output_index=index, item=item)
        self.whole(index, item)

    def _decided(self, change: changes.ActionSettled) -> None:
        call, data = change.asked.call, change.data
        made = self._calls.get((call.step, call.id))
        if made is None or made.request is None:
            return
        if self.mine:
            self.input.append(approval_response_item(made.request, data))
        if data["decision"] == "edit":
            made.call = {**made.call, "arguments": data["arguments"]}
        if change.approved and made.index is None:
            self._open_call(made)

    rows: ClassVar = MappingProxyType(
        {
            changes.StepEnded: ResponseWriter.discard,
            changes.PartOpened: ResponseWriter._opened_part,
            changes.PartGrown: ResponseWriter._grown,
            changes.TakenBack: ResponseWriter.discard,
            changes.AttemptFailed: ResponseWriter._attempt_failed,
            changes.MessageTold: _answered,
            changes.CallReturned: _returned,
            changes.ActionAsked: _asked,
            changes.ActionSettled: _decided,
            changes.StatusMoved: _moved,
            changes.ActionNeeded: _interrupted,
            changes.RunEnded: _finished,
        }
    )


def _of_model(data: Mapping[str, Any]) -> bool:
    return data.get("step") is not None and data["message"]["role"] == "assistant"


def _begins(event: StoredEvent, data: Mapping[str, Any]) -> bool:
    """Tell whether a run begins with an event, or goes on with it when it has waited."""
    if event.type == EventKind.ACTION_RESOLVED:
        return bool(data["decision"] != "cancelled")
    return event.type == EventKind.RUN_CREATED
