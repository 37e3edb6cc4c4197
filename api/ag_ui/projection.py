"""The state machine from a run's events to those of AG-UI.

It holds what clients rely on: what is opened is closed before the end, nothing comes behind that, each call is told of
before its result. Text that was shown and is not stored is taken back by a snapshot, since no event does that. What it
says follows from the events alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from palaver.errors import ErrorClass
from palaver.events import EventKind
from palaver.vocabulary.lifecycle import RunStatus, StopReason

from ..operations import StoredEvent
from ..shown_run import text_in
from .frames import DELTAS, VERSION, AgDelta, AgEvent, call_name, interrupt_id, message_id, result_id
from .messages import result_text
from .tables import ERRORS, OUTCOMES

ANSWER: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "type": "object",
        "required": ["approved"],
        "properties": {
            "approved": {"type": "boolean"},
            "reason": {"type": "string", "description": "With a refusal: the reason, for the model."},
            "arguments": {"type": "object", "description": "Other arguments for the call."},
        },
    }
)
"""The schema of the payload that answers an approval."""
OUTPUT: Final[Mapping[str, Any]] = MappingProxyType(
    {"type": "object", "required": ["output"], "properties": {"output": {}, "isError": {"type": "boolean"}}}
)
"""The same of a client's output."""


class RunProjection:
    """A run, or the part of it behind an answer, as one run of AG-UI."""

    def __init__(
        self, thread_id: str, ag_run_id: str, run_id: str, *, edge: int = 0, answers: frozenset[str] = frozenset()
    ) -> None:
        """``edge`` is the number of an event: up to there it is known how the run went on, so that waiting for somebody
        is an end only if nothing came behind it. ``answers`` are ids of actions and of calls."""
        self.over = False
        """True once the last event was made."""
        self.wants_snapshot = False
        """True if the client has shown what is not so: the messages of the log put that right."""
        self._thread_id, self._ag_run_id, self._run_id = thread_id, ag_run_id, run_id
        self._edge = edge
        self._answers = answers
        self.answered = not answers
        """True once one of the answers has been taken."""
        self._step: str | None = None
        self._attempt: int | None = None
        self._open: tuple[str, str] | None = None
        """The kind and the id of the message that is open."""
        self._length = self._checksum = 0
        """Those of the step's text so far."""
        self._torn = False
        """True if deltas of the step are missing: its text comes with its message."""
        self._calls: dict[tuple[str, str], str] = {}
        """The calls without a result, by the model step and the call's id: the ids that clients have for them."""
        self._interrupts: dict[str, AgEvent] = {}
        self._outputs: dict[str, str] = {}
        self._below: dict[str, AgEvent] = {}
        """Interrupts, and calls of client tools, by the id of the action."""
        self._awaiting = False
        """True while nothing else of the run is going on."""
        self._unanswered: set[str] = set()
        """Calls that were settled, and whose result is still to come."""

    @property
    def waiting(self) -> bool:
        """True while it needs somebody."""
        return bool((self._awaiting and not self._unanswered) or self._below)

    def opening(self) -> AgEvent:
        """Return the first event."""
        return self._about("RUN_STARTED", protocolVersion=VERSION)

    def read(self, event: StoredEvent) -> list[AgEvent]:
        """Return what an event says, up to the end of the run or the place where it waits for somebody."""
        if self.over:
            return []
        made = list(HANDLERS[event.type](self, event, event.data)) if event.type in HANDLERS else []
        if self.waiting and event.seq >= self._edge and not self.over:
            made += self._interrupted()
        return made

    def silence(self) -> list[AgEvent]:
        """Return what a silence says: a run that waits for somebody ends at the latest then."""
        return list(self._interrupted()) if self.waiting and not self.over else []

    def goes_on(self, frame: AgDelta) -> bool:
        """Tell whether a delta only goes on with the message that is open."""
        return (
            frame.text != ""
            and self._open is not None
            and frame.kind == self._open[0]
            and frame.step == self._step
            and frame.attempt == self._attempt
            and not self._torn
            and not self.over
        )

    def note(self, frame: AgDelta) -> None:
        """Note that a delta was sent that goes on with the message that is open."""
        if frame.kind == "TEXT_MESSAGE":
            self._length += len(frame.text)
            self._checksum = zlib.crc32(frame.text.encode(), self._checksum)

    def _about(self, kind: str, **more: Any) -> AgEvent:
        return {"type": kind, "threadId": self._thread_id, "runId": self._ag_run_id, **more}

    # Steps and messages.

    def _enter(self, step: str, attempt: int | None) -> Iterator[AgEvent]:
        if step == self._step:
            if attempt is not None and self._attempt is not None and attempt != self._attempt:
                yield from self._take_back()
            self._attempt = attempt or self._attempt
            return
        yield from self._leave()
        yield {"type": "STEP_STARTED", "stepName": step}
        self._step, self._attempt = step, attempt

    def _leave(self) -> Iterator[AgEvent]:
        yield from self._close()
        if self._step is not None:
            yield {"type": "STEP_FINISHED", "stepName": self._step}
        self._step = self._attempt = None
        self._forget()

    def _close(self) -> Iterator[AgEvent]:
        if self._open is not None:
            kind, of = self._open
            yield {"type": f"{kind}_END", "messageId": of}
            if kind == "REASONING_MESSAGE":
                yield {"type": "REASONING_END", "messageId": of}
        self._open = None

    def _show(self, kind: str, of: str) -> Iterator[AgEvent]:
        """Open the message that something comes for."""
        if self._open == (kind, of):
            return
        yield from self._close()
        if kind == "REASONING_MESSAGE":
            yield {"type": "REASONING_START", "messageId": of}
        yield {"type": f"{kind}_START", "messageId": of, "role": "reasoning" if kind[0] == "R" else "assistant"}
        self._open = (kind, of)

    def _take_back(self) -> Iterator[AgEvent]:
        """Forget the text that was shown of the step, and have the client forget it."""
        yield from self._close()
        self.wants_snapshot = self.wants_snapshot or self._length > 0
        self._forget()

    def _forget(self) -> None:
        self._length = self._checksum = 0

    def _step_started(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        if "/" not in data["step"]:
            yield from self._enter(data["step"], data["attempt"])
            self._torn = False
        self._awaiting = False

    def _delta(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield from self._enter(data["step"], data["attempt"])
        if self._torn or not data["text"]:
            return
        frame = DELTAS.of(event)
        yield from self._show(frame.kind, frame.message)
        yield {"type": f"{frame.kind}_CONTENT", "messageId": frame.message, "delta": frame.text}
        self.note(frame)

    def _discarded(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self._torn = False
        if data["step"] == self._step:
            yield from self._take_back()

    def _gap(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self._torn = True
        yield from ()

    def _rewound(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield from self._leave()
        yield from self._failed("The server has lost the last moments of this run: ask again.", "stream_rewound")

    def _message(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        message = data["message"]
        if message["role"] != "assistant":
            return
        step = data["step"] or f"m{event.seq}"
        yield from self._enter(step, None)
        yield from self._whole(text_in(message["content"]), message_id(self._run_id, step))
        yield from self._close()
        for call in message["tool_calls"]:
            yield from self._called(step, call)
        # The step is in the log: nothing takes it back any more.
        self._torn = False
        self._forget()

    def _whole(self, text: str, of: str) -> Iterator[AgEvent]:
        """See that the client has the text of the step as it is in the log."""
        begun = text[: self._length]
        if len(begun) < self._length or zlib.crc32(begun.encode()) != self._checksum:
            # The snapshot has the message.
            yield from self._take_back()
        elif rest := text[self._length :]:
            yield from self._show("TEXT_MESSAGE", of)
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": of, "delta": rest}

    def _called(self, step: str, call: Mapping[str, Any]) -> Iterator[AgEvent]:
        name = self._calls[step, call["id"]] = call_name(self._run_id, step, call["id"])
        yield {
            "type": "TOOL_CALL_START",
            "toolCallId": name,
            "toolCallName": call["name"],
            "parentMessageId": message_id(self._run_id, step),
        }
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": name, "delta": call["arguments"]}
        yield {"type": "TOOL_CALL_END", "toolCallId": name}

    def _result(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        message = data["message"]
        place = data["step"].partition("/")[0], message["call_id"] or ""
        name = self._calls.pop(place, None)
        if name is None:
            return
        self._unanswered.discard(name)
        yield {
            "type": "TOOL_CALL_RESULT",
            "messageId": result_id(self._run_id, *place),
            "toolCallId": name,
            "role": "tool",
            "content": result_text(message["content"]),
        }

    def _progress(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        name = self._calls.get((data["step"].partition("/")[0], data["call_id"]))
        if name is not None:
            value = {"toolCallId": name, "text": data["text"], "fraction": data["fraction"]}
            yield {"type": "CUSTOM", "name": "palaver.progress", "value": value}

    # People.

    def _action(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        action = data["action"]
        name = self._calls.get((data["step"].partition("/")[0], action["call_id"]))
        if action["type"] != "client_tool":
            self._interrupts[action["id"]] = self._interrupt(action, name)
        elif name is not None:
            self._outputs[action["id"]] = name
        yield from ()

    def _action_below(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        action = data["action"]
        made = self._interrupt(action, None)
        made["metadata"] |= {"runId": data["child_run_id"], "path": data["path"]}
        self._below[action["id"]] = made
        yield from self._leave()

    def _interrupt(self, action: Mapping[str, Any], name: str | None) -> AgEvent:
        approval, question = action["type"] == "approval", action.get("question")
        message, schema = f"{action['tool']} {action['arguments']}", dict(ANSWER if approval else OUTPUT)
        if question:
            at = f" {question['url']}" if question["url"] else ""
            message, schema = f"{question['asker']}: {question['message']}{at}", question["form"] or {"type": "object"}
        made: AgEvent = {
            "id": interrupt_id(self._run_id, action["id"]),
            "reason": "tool_call" if approval else "input_required",
            "message": message,
            "responseSchema": schema,
            "expiresAt": action["expires_at"],
            "metadata": {
                "tool": action["tool"],
                "arguments": action["arguments"],
                "digest": action["digest"],
                "secondPerson": action["second_person"],
            },
        }
        return made if name is None else made | {"toolCallId": name}

    def _resolved(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self._take_answer(data)
        approved = data["decision"] in ("approve", "edit")
        known = self._interrupts.pop(data["action_id"], None) or self._outputs.pop(data["action_id"], None)
        if approved or not (self._interrupts or self._outputs):
            self._awaiting = False
        place = next((place for place in self._calls if place[1] == data["call_id"]), None)
        if known is not None and not approved and place is not None:
            self._unanswered.add(self._calls[place])
        yield from ()

    def _resolved_below(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self._take_answer(data)
        self._below.pop(data["action_id"], None)
        yield from ()

    def _take_answer(self, data: Mapping[str, Any]) -> None:
        self.answered = self.answered or not self._answers.isdisjoint((data["action_id"], data["call_id"]))

    def _requires_action(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self._awaiting = True
        yield from self._leave()

    def _interrupted(self) -> Iterator[AgEvent]:
        """End because somebody is needed."""
        yield from self._leave()
        if interrupts := [*self._interrupts.values(), *self._below.values()]:
            outcome: AgEvent = {"type": "interrupt", "interrupts": interrupts}
        else:
            outcome = {"type": "success", "pendingToolCallIds": [*self._outputs.values()]}
        yield self._finish(outcome, None)

    # The run.

    def _queued(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield _status(RunStatus.QUEUED, reason="conversation_busy")

    def _running(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield _status(RunStatus.RUNNING)

    def _waiting(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield _status(RunStatus.RUNNING, reason=data["reason"], code=data["code"], delay=data["delay"])

    def _retrying(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield _status(RunStatus.RUNNING, reason="backoff", code=data["error"]["class"], delay=data["delay"])

    def _paused(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield _status(RunStatus.PAUSED)

    def _cancelling(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self._awaiting = False
        self._below = {}
        yield _status(RunStatus.CANCELLING)

    def _finished(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield from self._leave()
        reason = data["stop_reason"]
        outcome = OUTCOMES.get(reason, "success")
        if outcome == "error":
            error = data["error"] or {"class": ErrorClass.INTERNAL, "code": reason}
            said = "There was no time left for it." if reason == StopReason.DEADLINE else ERRORS.get(error["class"], "")
            yield from self._failed(f"{said} ({self._run_id})", error["code"] if data["error"] else reason)
        else:
            yield self._finish({"type": outcome}, reason)

    def _failed(self, message: str, code: str) -> Iterator[AgEvent]:
        self.over = True
        yield {"type": "RUN_ERROR", "message": message, "code": code}

    def _finish(self, outcome: AgEvent, reason: str | None) -> AgEvent:
        self.over = True
        result = {"runId": self._run_id} if reason is None else {"runId": self._run_id, "stopReason": reason}
        return self._about("RUN_FINISHED", outcome=outcome, result=result)

    def _nothing(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield from ()


def _status(status: RunStatus, **facts: Any) -> AgEvent:
    return {"type": "CUSTOM", "name": "palaver.status", "value": {"status": status, **facts}}


Handle = Callable[[RunProjection, StoredEvent, Mapping[str, Any]], Iterator[AgEvent]]
HANDLERS: Final[Mapping[str, Handle]] = MappingProxyType(
    {
        EventKind.RUN_CREATED: RunProjection._nothing,
        EventKind.RUN_QUEUED: RunProjection._queued,
        EventKind.RUN_STARTED: RunProjection._running,
        EventKind.RUN_WAITING: RunProjection._waiting,
        EventKind.RUN_RETRYING: RunProjection._retrying,
        EventKind.RUN_PAUSING: RunProjection._nothing,
        EventKind.RUN_PAUSED: RunProjection._paused,
        EventKind.RUN_RESUMED: RunProjection._running,
        EventKind.RUN_REQUIRES_ACTION: RunProjection._requires_action,
        EventKind.RUN_CANCELLING: RunProjection._cancelling,
        EventKind.RUN_FINISHED: RunProjection._finished,
        EventKind.STEP_STARTED: RunProjection._step_started,
        EventKind.STEP_LOST: RunProjection._nothing,
        EventKind.MESSAGE_DELTA: RunProjection._delta,
        EventKind.REASONING_DELTA: RunProjection._delta,
        EventKind.MESSAGE_CREATED: RunProjection._message,
        EventKind.MESSAGE_DISCARDED: RunProjection._discarded,
        EventKind.MESSAGES_WITHDRAWN: RunProjection._nothing,
        EventKind.TOOL_PROGRESS: RunProjection._progress,
        EventKind.TOOL_FINISHED: RunProjection._result,
        EventKind.ACTION_REQUIRED: RunProjection._action,
        EventKind.ACTION_RESOLVED: RunProjection._resolved,
        EventKind.CHILD_ACTION_REQUIRED: RunProjection._action_below,
        EventKind.CHILD_ACTION_RESOLVED: RunProjection._resolved_below,
        EventKind.BUDGET_WARNING: RunProjection._nothing,
        EventKind.CONVERSATION_CONDENSED: RunProjection._nothing,
        EventKind.REASONING_DROPPED: RunProjection._nothing,
        EventKind.STREAM_GAP: RunProjection._gap,
        EventKind.STREAM_REWOUND: RunProjection._rewound,
        EventKind.CONVERSATION_DELETED: RunProjection._nothing,
    }
)
"""The reading of an event, by its kind."""
