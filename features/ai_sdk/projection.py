"""The state machine from a run's events to chunks of the UI message stream.

It holds what clients rely on: nothing comes behind ``finish``; a chunk about a call comes behind the call; text that
was shown and is not stored is taken back by ``reset-step``; and at the end of a step its text is that of the log,
whatever was lost on the way. What it says follows from the events alone, so that a replay says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from api.kit.shown_run import OpenCalls, ShownText, text_in
from palaver.events import EventKind
from palaver.operations import StoredEvent
from palaver.vocabulary.lifecycle import RunStatus

from .awaited import AwaitedCalls, below, input_chunk
from .chunks import DELTAS, Chunk, DeltaFrame, part_id
from .statuses import error_text, status_chunk
from .tables import FINISHES
from .values import output_of, parts_of, settled_below, waiting_below


class ChatProjection:
    """The answer of one run, as a client follows it."""

    def __init__(self, run_id: str, *, client_tools: frozenset[str] = frozenset(), edge: int = 0) -> None:
        """``edge`` is the number of an event: up to there it is known how the run went on, so that waiting for an
        action ends the answer only if nothing came behind it."""
        self.over = False
        """True once ``finish`` was said."""
        self.goes_on: tuple[str, str, int] | None = None
        """The part that the event before was more of: a delta of the same ``place`` is said by its frame alone."""
        self._run_id = run_id
        self._client_tools = client_tools
        self._edge = edge
        self._step: str | None = None
        self._attempt: int | None = None
        self._open: str | None = None
        """The part that is open: ``text`` or ``reasoning``."""
        self._shown = False
        """True if there is something of the step that a reset takes back."""
        self._text = ShownText()
        """That of the step so far."""
        self._torn = False
        """True if deltas of the step are missing: its text comes with its message."""
        self._calls = OpenCalls()
        self._awaited = AwaitedCalls(self._calls)
        self._call_ids: set[str] = set()
        self._ends_with_calls = False
        self._steers: list[Chunk] = []

    def opening(self) -> Chunk:
        """Return the first chunk: the id of the message is that of the run."""
        return {"type": "start", "messageId": self._run_id, "messageMetadata": {"runId": self._run_id}}

    def read(self, event: StoredEvent) -> list[Chunk]:
        """Return the chunks of an event, up to the end of the run."""
        self.goes_on = None
        handler = None if self.over else HANDLERS.get(event.type)
        return [] if handler is None else list(handler(self, event, event.data))

    def chunks(self, event: StoredEvent) -> list[Chunk]:
        """Return the chunks of an event, up to the end of the run or the place where it waits for an action."""
        made = self.read(event)
        if self._awaited.idle and not self._calls.settled and event.seq >= self._edge and not self.over:
            made += self._finish("tool-calls")
        return made

    def silence(self) -> list[Chunk]:
        """Return the chunks of a silence: a run that waits for an action ends the answer at the latest then."""
        return list(self._finish("tool-calls")) if self._awaited.idle and not self.over else []

    def awaits(self, answers: frozenset[str]) -> bool:
        """Tell whether the run waits for one of these actions or calls."""
        return self._awaited.means(answers)

    def note(self, frame: DeltaFrame) -> None:
        """Note that a delta was sent that goes on with the part that is open."""
        self._text.add(frame.length, frame.raw)

    # Steps.

    def _enter(self, step: str, attempt: int | None) -> Iterator[Chunk]:
        if step == self._step:
            if attempt is not None and self._attempt is not None and attempt != self._attempt:
                yield from self._reset()
            self._attempt = attempt or self._attempt
            return
        yield from self._leave()
        yield from self._steers
        self._steers = []
        yield {"type": "start-step"}
        self._step, self._attempt, self._ends_with_calls = step, attempt, False

    def _leave(self) -> Iterator[Chunk]:
        yield from self._close()
        if self._step is not None:
            yield {"type": "finish-step"}
        self._step = self._attempt = None
        self._forget()

    def _close(self) -> Iterator[Chunk]:
        if self._open is not None and self._step is not None:
            yield {"type": f"{self._open}-end", "id": part_id(self._open, self._step)}
        self._open = None

    def _reset(self) -> Iterator[Chunk]:
        if self._shown:
            yield {"type": "reset-step"}
        self._open = None
        self._forget()

    def _forget(self) -> None:
        self._shown = False
        self._text.forget()

    def _show(self, kind: str) -> Iterator[Chunk]:
        """Open the part that something comes for."""
        if self._open != kind and self._step is not None:
            yield from self._close()
            yield {"type": f"{kind}-start", "id": part_id(kind, self._step)}
            self._open, self._shown = kind, True

    def _step_started(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        if "/" not in data["step"]:
            yield from self._enter(data["step"], data["attempt"])
            self._torn = False
        self._awaited.idle = False

    def _delta(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield from self._enter(data["step"], data["attempt"])
        if self._torn or not data["text"]:
            return
        frame = DELTAS.of(event)
        yield from self._show(frame.kind)
        yield {"type": f"{frame.kind}-delta", "id": part_id(frame.kind, frame.step), "delta": frame.text}
        self.note(frame)
        self.goes_on = frame.place

    def _discarded(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        self._torn = False
        if data["step"] == self._step:
            yield from self._reset()

    def _gap(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        self._torn = True
        yield from ()

    def _rewound(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        text = "The server has lost the last moments of this answer: load the page again."
        yield {"type": "error", "errorText": f"{text} (storage, stream_rewound, {self._run_id})"}
        yield from self._finish("error")

    # Messages and calls.

    def _message(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        message = data["message"]
        if message["role"] == "user" and data["steer"]:
            parts = parts_of(message["content"])
            self._steers.append({"type": "steering-message", "id": f"{self._run_id}-{event.seq}", "parts": parts})
        if message["role"] != "assistant":
            return
        step = data["step"] or f"m{event.seq}"
        yield from self._enter(step, None)
        yield from self._whole(text_in(message["content"]), step)
        yield from self._close()
        for part in parts_of(message["content"]):
            if part["type"] == "file":
                yield part
        for call in message["tool_calls"]:
            yield from self._called(step, call)
        # The step is in the log: nothing takes it back any more.
        self._torn = False
        self._forget()

    def _whole(self, text: str, step: str) -> Iterator[Chunk]:
        """See that the client has the text of the step as it is in the log."""
        rest = self._text.rest_of(text)
        if rest is None:
            yield from self._reset()
            rest = text
        if rest:
            yield from self._show("text")
            yield {"type": "text-delta", "id": part_id("text", step), "delta": rest}

    def _called(self, step: str, call: Mapping[str, Any]) -> Iterator[Chunk]:
        call_id = call["id"]
        # Providers may give an id again in a later step; clients know a call by its id alone.
        known_as = call_id if call_id not in self._call_ids else f"{call_id}~{step}"
        self._call_ids.add(call_id)
        self._calls.begin(step, call_id, known_as)
        self._ends_with_calls = True
        yield input_chunk(known_as, call["name"], call["arguments"], ours=call["name"] not in self._client_tools)

    def _result(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        message = data["message"]
        known_as = self._calls.end(data["step"], message["call_id"] or "")
        if known_as is None:
            return
        content = message["content"]
        if self._awaited.take_denied(known_as):
            yield {"type": "tool-output-denied", "toolCallId": known_as}
        elif message["is_error"]:
            yield {"type": "tool-output-error", "toolCallId": known_as, "errorText": text_in(content)}
        else:
            yield {"type": "tool-output-available", "toolCallId": known_as, "output": output_of(content)}

    def _progress(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        known_as = self._calls.name_of(data["step"], data["call_id"])
        if known_as is not None:
            fraction = {} if data["fraction"] is None else {"fraction": data["fraction"]}
            told = {"toolCallId": known_as, "text": data["text"], **fraction}
            yield {"type": "data-palaver-progress", "data": told, "transient": True}

    def _action(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield from self._awaited.ask(data["step"], data["action"])

    def _resolved(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield from self._awaited.resolve(data)

    def _action_below(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield below(data["action"]["id"], waiting_below(data))

    def _resolved_below(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield below(data["action_id"], settled_below(data))

    def _requires_action(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        self._awaited.idle = True
        yield from ()

    # The run.

    def _status(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield status_chunk(event.type, data)

    def _cancelling(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        self._awaited.idle = False
        yield from self._status(event, data)

    def _finished(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        reason = FINISHES.get(data["stop_reason"], "other")
        if reason == "other" and self._ends_with_calls:
            # Clients send an answer again by themselves whose last step has its results, unless it was interrupted.
            reason = "interrupted"
        yield from self._leave()
        yield from self._steers
        if reason == "error":
            yield {"type": "error", "errorText": error_text(data["error"], data["stop_reason"], self._run_id)}
        elif data["status"] == RunStatus.CANCELLED:
            yield {"type": "abort", "reason": "cancelled"}
        yield from self._finish(reason)

    def _finish(self, reason: str) -> Iterator[Chunk]:
        yield from self._leave()
        self.over, self._awaited.idle, self.goes_on = True, False, None
        yield {"type": "finish", "finishReason": reason, "messageMetadata": {"runId": self._run_id}}


Handle = Callable[[ChatProjection, StoredEvent, Mapping[str, Any]], Iterator[Chunk]]
HANDLERS: Final[Mapping[str, Handle]] = MappingProxyType(
    {
        EventKind.RUN_QUEUED: ChatProjection._status,
        EventKind.RUN_STARTED: ChatProjection._status,
        EventKind.RUN_WAITING: ChatProjection._status,
        EventKind.RUN_RETRYING: ChatProjection._status,
        EventKind.RUN_PAUSED: ChatProjection._status,
        EventKind.RUN_RESUMED: ChatProjection._status,
        EventKind.RUN_REQUIRES_ACTION: ChatProjection._requires_action,
        EventKind.RUN_CANCELLING: ChatProjection._cancelling,
        EventKind.RUN_FINISHED: ChatProjection._finished,
        EventKind.STEP_STARTED: ChatProjection._step_started,
        EventKind.MESSAGE_DELTA: ChatProjection._delta,
        EventKind.REASONING_DELTA: ChatProjection._delta,
        EventKind.MESSAGE_CREATED: ChatProjection._message,
        EventKind.MESSAGE_DISCARDED: ChatProjection._discarded,
        EventKind.TOOL_PROGRESS: ChatProjection._progress,
        EventKind.TOOL_FINISHED: ChatProjection._result,
        EventKind.ACTION_REQUIRED: ChatProjection._action,
        EventKind.ACTION_RESOLVED: ChatProjection._resolved,
        EventKind.CHILD_ACTION_REQUIRED: ChatProjection._action_below,
        EventKind.CHILD_ACTION_RESOLVED: ChatProjection._resolved_below,
        EventKind.STREAM_GAP: ChatProjection._gap,
        EventKind.STREAM_REWOUND: ChatProjection._rewound,
    }
)
"""The reading of an event, by its kind. Of other kinds clients have no word."""
