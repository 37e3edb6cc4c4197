"""Entries of a conversation's log as OpenHands' events: pure, so that every look at an entry gives the same events.

An entry may be several events (an answer that asks for three tools is three actions) or none: OpenHands has no words
for retries, waits and leases. Fields and kinds that the older client does not know are left out for it. An event is no
larger than what clients take: frames of 1 MiB, and one that is larger closes their socket for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID, uuid4

import orjson

from palaver.errors import ErrorClass
from palaver.errors.sentences import Sentence
from palaver.events import EventKind
from palaver.late import dataclass
from palaver.operations import LogEntry, StoredEvent
from palaver.schemas.actions import ClientTool
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from palaver.vocabulary.limits import KIB

from .content import client_action, shown
from .ids import FIRST, action_id, event_id
from .state import Generation
from .tables import ExecutionStatus, execution_status, of_failure, of_limit

MOST: Final = 900 * KIB
"""Bytes of an event as JSON."""
_TEXTS: Final = (128 * KIB, 16 * KIB)
"""Characters that are left of a long text, if that is enough."""
_TEXT: Final = KIB
_ITEMS: Final = 24
"""Characters of a text and items of a list that are left in any case: an event has two lists of texts at most, of 6 KiB
each as JSON."""
_NOT_SHOWN: Final = {"kind": "MCPToolAction", "data": {"left_out": "The arguments are too large to be shown."}}


def fitting(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event that a client can take: of one that is too large, long texts are cut, and if it has many short
    ones, only the first stay. That is done wherever it is shown, so that it is the same event everywhere."""
    shown = event
    for longest in _TEXTS:
        if len(orjson.dumps(shown)) <= MOST:
            return shown
        shown = _cut(event, longest)
    if len(orjson.dumps(shown)) <= MOST:
        return shown
    least: dict[str, Any] = _cut({**event, "action": _NOT_SHOWN} if "action" in event else event, _TEXT, _ITEMS)
    return least


def _cut(value: Any, longest: int, items: int | None = None) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… [{len(value) - longest} characters more]"
    if isinstance(value, dict):
        return {name: _cut(part, longest, items) for name, part in value.items()}
    if isinstance(value, list):
        return [_cut(part, longest, items) for part in value[:items]]
    return value


Event = dict[str, Any]
"""In JSON, without nulls."""
INTERRUPT: Final = "interrupt"
"""The reason of a pause that clients asked for by that word."""
STATUS: Final = "execution_status"
FULL_STATE: Final = "full_state"


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the events of one conversation for one generation of clients."""

    conversation: UUID
    generation: Generation
    client_tools: Mapping[str, ClientTool] = field(default_factory=dict)
    """The client's tools by name."""

    def system_prompt(self, at: datetime, text: str, tools: Sequence[Event] = ()) -> Event:
        """Return the event with the agent's prompt and its tools, which stands before all others."""
        event = self._event("SystemPromptEvent", event_id(self.conversation, FIRST), at, "agent")
        return fitting(event | {"system_prompt": {"type": "text", "text": text}, "tools": [*tools]})

    def state(self, id: str, at: datetime, key: str, value: Any) -> Event:
        """Return the event for a part of the conversation's state, or for all of it."""
        return self._event("ConversationStateUpdateEvent", id, at, "environment") | {"key": key, "value": value}

    def delta(self, event: StoredEvent) -> Event:
        """Return the event for a delta of a model's text or reasoning. It is not stored, so its id is never looked for
        later."""
        field = "content" if event.type == EventKind.MESSAGE_DELTA else "reasoning_content"
        return self._event("StreamingDeltaEvent", str(uuid4()), event.at, "agent") | {field: event.data["text"]}

    def of(self, entry: LogEntry) -> list[Event]:
        """Return the events that an entry is, in order."""
        write = _WRITERS.get(entry.type)
        return [] if write is None else [fitting(event) for event in write(self, entry, entry.data)]

    # One for each kind of entry.

    def _created(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        yield self._status(entry, 0, ExecutionStatus.RUNNING)

    def _message(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        message = data["message"]
        match message["role"]:
            case "tool":
                yield self._result(entry, message, data.get("step"), data.get("error"))
            case "assistant" if message.get("tool_calls"):
                yield from self._actions(entry, data)
            case "assistant":
                yield self._spoken(entry, "agent", message) | self._response(entry, data.get("step"))
            case _:
                yield self._spoken(entry, "environment" if data.get("nudge") else "user", message)

    def _finished_tool(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        yield self._result(entry, data["message"], data["step"], data.get("error"))

    def _pausing(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        interrupt = data.get("reason") == INTERRUPT and self.generation is Generation.NEWER
        yield self._event("InterruptEvent" if interrupt else "PauseEvent", self._id(entry), entry.at, "user")
        yield self._status(entry, 1, ExecutionStatus.PAUSED)

    def _paused(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        yield self._status(entry, 0, ExecutionStatus.PAUSED)

    def _resumed(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        yield self._status(entry, 0, ExecutionStatus.RUNNING)

    def _awaits(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        yield self._status(entry, 0, ExecutionStatus.WAITING)

    def _finished(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        status, reason, error = data["status"], data["stop_reason"], data.get("error")
        if reason != StopReason.STUCK:
            report = of_failure(error) if error else None
            if status in (RunStatus.INCOMPLETE, RunStatus.EXPIRED):
                report = of_limit(reason, data.get("incomplete_details"))
            if report is not None:
                code, detail, classification = report
                # Before the status: who waits takes the reason from what came until then.
                yield self._event("ConversationErrorEvent", self._id(entry), entry.at, "environment") | {
                    "code": code,
                    "detail": detail,
                    **self._if_newer(classification=classification),
                }
        yield self._status(entry, 1, execution_status(status, reason))

    def _condensed(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        yield self._event("Condensation", self._id(entry), entry.at, "environment") | {
            "forgotten_event_ids": [],
            "summary": data["summary"],
            **self._response(entry, data["step"]),
        }

    # The parts that they are made of.

    def _spoken(self, entry: LogEntry, source: str, message: dict[str, Any]) -> Event:
        role = "assistant" if source == "agent" else "user"
        llm_message: dict[str, Any] = {"role": role, "content": shown(message.get("content", ""))}
        if thoughts := entry.opaque.reasoning() if entry.opaque else "":
            llm_message["reasoning_content"] = thoughts
        return self._event("MessageEvent", self._id(entry), entry.at, source) | {"llm_message": llm_message}

    def _actions(self, entry: LogEntry, data: dict[str, Any]) -> Iterator[Event]:
        message, step = data["message"], data.get("step")
        text, thoughts = message.get("content", ""), entry.opaque.reasoning() if entry.opaque else ""
        for index, call in enumerate(message["tool_calls"]):
            name, arguments = call["name"], call.get("arguments", "{}")
            made = call["id"] not in data.get("refused_calls", ())
            action = self._action(name, arguments) if made else None
            event = self._event("ActionEvent", self._action_id(entry, step, call["id"]), entry.at, "agent")
            yield event | {
                "thought": shown(text) if text and not index else [],
                **({"reasoning_content": thoughts} if thoughts and not index else {}),
                **({"action": action} if action is not None else {}),
                "tool_name": name,
                "tool_call_id": call["id"],
                "tool_call": {"id": call["id"], "name": name, "arguments": arguments, "origin": "completion"},
                **self._response(entry, step),
                **(self._risk(call, data.get("risky_calls")) if made else {}),
            }

    def _result(self, entry: LogEntry, message: dict[str, Any], step: str | None, error: Any) -> Event:
        call_id, tool = message.get("call_id") or "", message.get("name") or ""
        about = {"tool_name": tool, "tool_call_id": call_id}
        action = {"action_id": self._action_id(entry, step, call_id)}
        content = shown(message.get("content", ""))
        text = "\n".join(part["text"] for part in content if part["type"] == "text")
        if error and error["class"] == ErrorClass.TOOL_DENIED:
            event = self._event("UserRejectObservation", self._id(entry), entry.at, "environment")
            # A reason as it was given: the words before it are for the model.
            return event | about | action | {"rejection_reason": text.removeprefix(f"{Sentence.DENIED} ")}
        if error or message.get("is_error"):
            event = self._event("AgentErrorEvent", self._id(entry), entry.at, "agent") | about | {"error": text}
            return event | self._if_newer(classification=of_failure(error)[2]) if error else event
        event = self._event("ObservationEvent", self._id(entry), entry.at, "environment")
        return event | about | action | {"observation": self._observation(tool, content)}

    def _action(self, tool: str, arguments: str) -> Event | None:
        """Return the action of a call, in a kind that its clients know; None if its arguments are no object: nothing
        was done."""
        try:
            data = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError:
            return None
        match tool, data:
            case _ if not isinstance(data, dict):
                return None
            case "finish", {"message": str(message)}:
                return {"kind": "FinishAction", "message": message}
            case "think", {"thought": str(thought)}:
                return {"kind": "ThinkAction", "thought": thought}
        own = client_action(self.client_tools[tool], data) if self._is_of_client(tool) else None
        return own or {"kind": "MCPToolAction", "data": data}

    def _observation(self, tool: str, content: list[Event]) -> Event:
        shown = {"content": content, "is_error": False}
        match tool:
            case "finish":
                return {"kind": "FinishObservation", **shown}
            case "think":
                return {"kind": "ThinkObservation", **shown}
            case _ if self._is_of_client(tool):
                return {"kind": "ClientToolObservation", **shown}
            case _:
                return {"kind": "MCPToolObservation", **shown, "tool_name": tool}

    def _is_of_client(self, tool: str) -> bool:
        """Tell whether the client carries a tool out, and has a kind of its own for it."""
        return self.generation is Generation.NEWER and tool in self.client_tools

    def _risk(self, call: dict[str, Any], risky: Sequence[str] | None) -> dict[str, str]:
        """Return the risk of a call, as its tool declared it when the call began. It is unknown for client tools."""
        if risky is None or call["name"] in self.client_tools:
            return {}
        return {"security_risk": "HIGH" if call["id"] in risky else "LOW"}

    def _status(self, entry: LogEntry, part: int, status: ExecutionStatus) -> Event:
        return self.state(self._id(entry, part), entry.at, STATUS, status.value)

    def _response(self, entry: LogEntry, step: str | None) -> dict[str, str]:
        """Return the id of the model's answer: all of its actions have the same."""
        return {"llm_response_id": f"{entry.run_id}:{step or entry.position}"}

    def _action_id(self, entry: LogEntry, step: str | None, call_id: str) -> str:
        return action_id(self.conversation, entry.run_id, step, call_id)

    def _if_newer(self, **fields: Any) -> dict[str, Any]:
        return fields if self.generation is Generation.NEWER else {}

    def _id(self, entry: LogEntry, part: int = 0) -> str:
        return event_id(self.conversation, entry.position, part)

    @staticmethod
    def _event(kind: str, id: str, at: datetime, source: str) -> Event:
        return {"kind": kind, "id": id, "timestamp": timestamp(at), "source": source}


_Write = Callable[[Writer, LogEntry, dict[str, Any]], Iterator[Event]]
_WRITERS: Final[Mapping[str, _Write]] = MappingProxyType(
    {
        EventKind.RUN_CREATED: Writer._created,
        EventKind.MESSAGE_CREATED: Writer._message,
        EventKind.TOOL_FINISHED: Writer._finished_tool,
        EventKind.RUN_PAUSING: Writer._pausing,
        EventKind.RUN_PAUSED: Writer._paused,
        EventKind.RUN_RESUMED: Writer._resumed,
        EventKind.RUN_REQUIRES_ACTION: Writer._awaits,
        EventKind.RUN_FINISHED: Writer._finished,
        EventKind.CONVERSATION_CONDENSED: Writer._condensed,
    }
)


def timestamp(at: datetime) -> str:
    """Return a time as all events have it: clients order by the text, so its length and its zone, UTC, are always the
    same."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
