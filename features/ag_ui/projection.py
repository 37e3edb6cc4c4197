"""The state machine from a run's events to those of AG-UI.

It holds what clients rely on: what is opened is closed before the end, nothing comes behind that, each call is told of
before its result. Text that was shown and is not stored is taken back by a snapshot, since no event does that. What it
says follows from the events alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from api.kit.shown_run import OpenCalls, ShownText, failure_sentence, status_in, text_in
from palaver.errors import ErrorClass
from palaver.events import EventKind
from palaver.operations import StoredEvent
from palaver.schemas.arguments import as_json

from .frames import DELTAS, VERSION, AgDelta, AgEvent, call_name, message_id, result_id
from .interrupts import Interrupts
from .messages import result_text
from .tables import OUTCOMES


class RunProjection:
    """A run, or the part of it behind an answer, as one run of AG-UI."""

    def __init__(
        self,
        thread_id: str,
        ag_run_id: str,
        run_id: str,
        *,
        edge: int = 0,
        answers: frozenset[str] = frozenset(),
        known: frozenset[str] = frozenset(),
    ) -> None:
        """``edge`` is the number of an event: up to there it is known how the run went on, so that waiting for an
        action is an end only if nothing came behind it. ``answers`` are ids of actions and of calls; ``known`` are the
        calls, as clients name them, whose results the client has: it would show them once more."""
        self.over = False
        """True once the last event was made."""
        self.wants_snapshot = False
        """True if the client has shown what is not so: the messages of the log put that right."""
        self.reached = 0
        """The number of the event that was read last."""
        self._thread_id, self._ag_run_id, self._run_id = thread_id, ag_run_id, run_id
        self._edge = edge
        self._known = known
        self._step: str | None = None
        self._attempt: int | None = None
        self._open: tuple[str, str] | None = None
        """The kind and the id of the message that is open."""
        self._text = ShownText()
        """That of the step so far."""
        self._torn = False
        """True if deltas of the step are missing: its text comes with its message."""
        self._calls = OpenCalls()
        self.interrupts = Interrupts(run_id, self._calls, answers)

    def opening(self) -> AgEvent:
        """Return the first event."""
        return self._about("RUN_STARTED", protocolVersion=VERSION)

    def read(self, event: StoredEvent) -> list[AgEvent]:
        """Return what an event says, up to the end of the run or the place where it waits for an action."""
        if self.over:
            return []
        self.reached = event.seq
        made = list(HANDLERS[event.type](self, event, event.data)) if event.type in HANDLERS else []
        if self.interrupts.waiting and event.seq >= self._edge and not self.over:
            made += self._interrupted()
        return made

    def silence(self) -> list[AgEvent]:
        """Return what a silence says: a run that waits for an action ends at the latest then."""
        return list(self._interrupted()) if self.interrupts.waiting and not self.over else []

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
            self._text.add(len(frame.text), frame.raw)

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
        self._text.forget()

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
        self.wants_snapshot = self.wants_snapshot or bool(self._text)
        self._text.forget()

    def _step_started(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        if "/" not in data["step"]:
            yield from self._enter(data["step"], data["attempt"])
            self._torn = False
        self.interrupts.idle = False

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
        yield from self._failed("The server has lost the last moments of this run: ask again.", ErrorClass.STORAGE)

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
        self._text.forget()

    def _whole(self, text: str, of: str) -> Iterator[AgEvent]:
        """See that the client has the text of the step as it is in the log."""
        rest = self._text.rest_of(text)
        if rest is None:
            # The snapshot has the message.
            yield from self._take_back()
        elif rest:
            yield from self._show("TEXT_MESSAGE", of)
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": of, "delta": rest}

    def _called(self, step: str, call: Mapping[str, Any]) -> Iterator[AgEvent]:
        name = call_name(self._run_id, step, call["id"])
        self._calls.begin(step, call["id"], name)
        yield {
            "type": "TOOL_CALL_START",
            "toolCallId": name,
            "toolCallName": call["name"],
            "parentMessageId": message_id(self._run_id, step),
        }
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": name, "delta": as_json(call["arguments"])}
        yield {"type": "TOOL_CALL_END", "toolCallId": name}

    def _result(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        message = data["message"]
        call_id = message["call_id"] or ""
        name = self._calls.end(data["step"], call_id)
        if name is not None and name not in self._known:
            yield {
                "type": "TOOL_CALL_RESULT",
                "messageId": result_id(self._run_id, data["step"].partition("/")[0], call_id),
                "toolCallId": name,
                "role": "tool",
                "content": result_text(message["content"]),
            }

    def _progress(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        name = self._calls.name_of(data["step"], data["call_id"])
        if name is not None:
            value = {"toolCallId": name, "text": data["text"], "fraction": data["fraction"]}
            yield {"type": "CUSTOM", "name": "palaver.progress", "value": value}

    # People.

    def _action(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self.interrupts.ask(data["step"], data["action"])
        yield from ()

    def _action_below(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self.interrupts.ask_below(data)
        yield from self._leave()

    def _resolved(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self.interrupts.resolve(data)
        yield from ()

    def _resolved_below(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self.interrupts.resolve_below(data)
        yield from ()

    def _requires_action(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self.interrupts.idle = True
        yield from self._leave()

    def _interrupted(self) -> Iterator[AgEvent]:
        """End because an action is needed."""
        yield from self._leave()
        yield self._finish(self.interrupts.outcome(), None)

    # The run.

    def _status(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        status, why = status_in(event.type, data)
        yield {"type": "CUSTOM", "name": "palaver.status", "value": {"status": status, **why}}

    def _cancelling(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        self.interrupts.forget()
        yield from self._status(event, data)

    def _finished(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[AgEvent]:
        yield from self._leave()
        reason = data["stop_reason"]
        outcome = OUTCOMES.get(reason, "success")
        if outcome == "error":
            error = data["error"]
            error_class = reason if error is None else error["class"]
            yield from self._failed(f"{failure_sentence(error, reason)} ({self._run_id})", error_class)
        else:
            yield self._finish({"type": outcome}, reason)

    def _failed(self, message: str, error_class: str) -> Iterator[AgEvent]:
        self.over = True
        yield {"type": "RUN_ERROR", "message": message, "code": error_class}

    def _finish(self, outcome: AgEvent, reason: str | None) -> AgEvent:
        self.over = True
        result = {"runId": self._run_id} if reason is None else {"runId": self._run_id, "stopReason": reason}
        return self._about("RUN_FINISHED", outcome=outcome, result=result)


Handle = Callable[[RunProjection, StoredEvent, Mapping[str, Any]], Iterator[AgEvent]]
HANDLERS: Final[Mapping[str, Handle]] = MappingProxyType(
    {
        EventKind.RUN_QUEUED: RunProjection._status,
        EventKind.RUN_STARTED: RunProjection._status,
        EventKind.RUN_WAITING: RunProjection._status,
        EventKind.RUN_RETRYING: RunProjection._status,
        EventKind.RUN_PAUSED: RunProjection._status,
        EventKind.RUN_RESUMED: RunProjection._status,
        EventKind.RUN_REQUIRES_ACTION: RunProjection._requires_action,
        EventKind.RUN_CANCELLING: RunProjection._cancelling,
        EventKind.RUN_FINISHED: RunProjection._finished,
        EventKind.STEP_STARTED: RunProjection._step_started,
        EventKind.MESSAGE_DELTA: RunProjection._delta,
        EventKind.REASONING_DELTA: RunProjection._delta,
        EventKind.MESSAGE_CREATED: RunProjection._message,
        EventKind.MESSAGE_DISCARDED: RunProjection._discarded,
        EventKind.TOOL_PROGRESS: RunProjection._progress,
        EventKind.TOOL_FINISHED: RunProjection._result,
        EventKind.ACTION_REQUIRED: RunProjection._action,
        EventKind.ACTION_RESOLVED: RunProjection._resolved,
        EventKind.CHILD_ACTION_REQUIRED: RunProjection._action_below,
        EventKind.CHILD_ACTION_RESOLVED: RunProjection._resolved_below,
        EventKind.STREAM_GAP: RunProjection._gap,
        EventKind.STREAM_REWOUND: RunProjection._rewound,
    }
)
"""The reading of an event, by its kind. Of other kinds clients have no word."""
