"""The state machine from a run's events to chunks of the UI message stream.

It holds what clients rely on: nothing comes behind ``finish``; a chunk about a call comes behind the call; text that
was shown and is not stored is taken back by ``reset-step``; and at the end of a step its text is that of the log,
whatever was lost on the way. What it says follows from the events alone, so that a replay says the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from palaver.errors import ErrorClass
from palaver.events import EventKind
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason

from ..operations import StoredEvent
from ..shown_run import text_in
from .chunks import DELTAS, Chunk, DeltaFrame, part_id
from .tables import ERRORS, FINISHES, STATUSES, WAITS
from .values import input_of, output_of, parts_of, question_of, waiting_below

_REASONS: Final = {"expired": "Nobody decided in time.", "cancelled": "The answer was stopped."}


class AwaitedCall(NamedTuple):
    """A call that waits for somebody: its id, the one that the client has for it, its tool, and if it is for an
    approval."""

    call_id: str
    known_as: str
    tool: str
    approval: bool
    question: Chunk | None = None


class ChatProjection:
    """The answer of one run, as a client follows it."""

    def __init__(self, run_id: str, *, client_tools: frozenset[str] = frozenset(), edge: int = 0) -> None:
        """``edge`` is the number of an event: up to there it is known how the run went on, so that waiting for somebody
        ends the answer only if nothing came behind it."""
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
        self._length = self._checksum = 0
        """Those of the step's text so far."""
        self._torn = False
        """True if deltas of the step are missing: its text comes with its message."""
        self._calls: dict[tuple[str, str], str] = {}
        """The calls without a result, by the model step and the call's id: the ids that the client has for them."""
        self._call_ids: set[str] = set()
        self._ends_with_calls = False
        self._awaited: dict[str, AwaitedCall] = {}
        """By the id of the action."""
        self._denied: set[str] = set()
        self._awaiting = False
        """True while nothing else of the run is going on."""
        self._unanswered: set[str] = set()
        """Calls that were settled, and whose result is still to come."""
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
        """Return the chunks of an event, up to the end of the run or the place where it waits for somebody."""
        made = self.read(event)
        if self._awaiting and not self._unanswered and event.seq >= self._edge and not self.over:
            made += self._finish("tool-calls")
        return made

    def silence(self) -> list[Chunk]:
        """Return the chunks of a silence: a run that waits for somebody ends the answer at the latest then."""
        return list(self._finish("tool-calls")) if self._awaiting and not self.over else []

    def awaits(self, answers: frozenset[str]) -> bool:
        """Tell whether the run waits for one of these actions or calls."""
        return any(action in answers or call.call_id in answers for action, call in self._awaited.items())

    def note(self, frame: DeltaFrame) -> None:
        """Note that a delta was sent that goes on with the part that is open."""
        self._length += frame.length
        self._checksum = zlib.crc32(frame.raw, self._checksum)

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
        self._length = self._checksum = 0

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
        self._awaiting = False

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
        if message["role"] == "user":
            if data["steer"]:
                parts = parts_of(message["content"])
                self._steers.append({"type": "steering-message", "id": f"{self._run_id}-{event.seq}", "parts": parts})
            return
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
        begun = text[: self._length]
        if len(begun) < self._length or zlib.crc32(begun.encode()) != self._checksum:
            yield from self._reset()
        if rest := text[self._length :]:
            yield from self._show("text")
            yield {"type": "text-delta", "id": part_id("text", step), "delta": rest}

    def _called(self, step: str, call: Mapping[str, Any]) -> Iterator[Chunk]:
        call_id = call["id"]
        # Providers may give an id again in a later step; clients know a call by its id alone.
        known_as = call_id if call_id not in self._call_ids else f"{call_id}~{step}"
        self._call_ids.add(call_id)
        self._calls[step, call_id] = known_as
        self._ends_with_calls = True
        yield self._input(known_as, call["name"], call["arguments"])

    def _input(self, known_as: str, tool: str, arguments: str) -> Chunk:
        chunk = {"type": "tool-input-available", "toolCallId": known_as, "toolName": tool, "input": input_of(arguments)}
        if tool in self._client_tools:
            return chunk
        return chunk | {"dynamic": True, "providerExecuted": True}

    def _result(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        message = data["message"]
        place = data["step"].partition("/")[0], message["call_id"] or ""
        known_as = self._calls.pop(place, None)
        if known_as is None:
            return
        self._unanswered.discard(known_as)
        content = message["content"]
        if known_as in self._denied:
            self._denied.discard(known_as)
            yield {"type": "tool-output-denied", "toolCallId": known_as}
        elif message["is_error"]:
            yield {"type": "tool-output-error", "toolCallId": known_as, "errorText": text_in(content)}
        else:
            yield {"type": "tool-output-available", "toolCallId": known_as, "output": output_of(content)}

    def _progress(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        known_as = self._calls.get((data["step"].partition("/")[0], data["call_id"]))
        if known_as is not None:
            told = {"toolCallId": known_as, "text": data["text"]}
            if data["fraction"] is not None:
                told["fraction"] = data["fraction"]
            yield {"type": "data-palaver-progress", "data": told, "transient": True}

    # People.

    def _action(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        action = data["action"]
        known_as = self._calls.get((data["step"].partition("/")[0], action["call_id"]))
        if known_as is None:
            return
        question = None
        if action["type"] == "question":
            question = {
                "type": "data-palaver-question",
                "id": action["id"],
                "data": question_of(action, known_as),
            }
            yield question
        self._awaited[action["id"]] = AwaitedCall(
            action["call_id"], known_as, action["tool"], action["type"] == "approval", question
        )
        if action["type"] == "approval":
            about = {"expiresAt": action["expires_at"], "secondPerson": action["second_person"]}
            yield {
                "type": "tool-approval-request",
                "approvalId": action["id"],
                "toolCallId": known_as,
                "approvalDescriptor": about,
            }

    def _resolved(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        decision, awaited = data["decision"], self._awaited.pop(data["action_id"], None)
        approved = decision in ("approve", "edit")
        if approved or not self._awaited:
            self._awaiting = False
        if awaited is None:
            return
        if not approved:
            self._unanswered.add(awaited.known_as)
        if awaited.question is not None:
            # The same id takes the place of the question.
            settled = {"decision": decision} | ({"response": data["response"]} if data.get("response") else {})
            yield awaited.question | {"data": awaited.question["data"] | settled}
        if not awaited.approval:
            return
        if not approved:
            self._denied.add(awaited.known_as)
        if decision == "edit":
            yield self._input(awaited.known_as, awaited.tool, data["arguments"] or "{}")
        told: Chunk = {"type": "tool-approval-response", "approvalId": data["action_id"], "approved": approved}
        why = data["reason"] or _REASONS.get(decision)
        yield told if why is None else told | {"reason": why}

    def _action_below(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield _below(data["action"]["id"], waiting_below(data["action"], data["child_run_id"], data["path"]))

    def _resolved_below(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        settled = {"actionId": data["action_id"], "runId": data["child_run_id"], "decision": data["decision"]}
        yield _below(data["action_id"], settled)

    def _requires_action(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        self._awaiting = True
        yield from ()

    # The run.

    def _queued(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield _status(RunStatus.QUEUED, text=WAITS[WaitReason.CONVERSATION_BUSY], reason=WaitReason.CONVERSATION_BUSY)

    def _running(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield _status(RunStatus.RUNNING)

    def _waiting(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        reason = data["reason"]
        yield _status(
            RunStatus.RUNNING, text=WAITS.get(reason, ""), reason=reason, code=data["code"], delay=data["delay"]
        )

    def _retrying(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        error = data["error"]
        yield _status(
            RunStatus.RUNNING,
            text=WAITS[WaitReason.BACKOFF],
            reason=WaitReason.BACKOFF,
            code=error["class"],
            delay=data["delay"],
        )

    def _paused(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield _status(RunStatus.PAUSED)

    def _cancelling(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        self._awaiting = False
        yield _status(RunStatus.CANCELLING)

    def _finished(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        reason = FINISHES.get(data["stop_reason"], "other")
        if reason == "other" and self._ends_with_calls:
            # Clients send an answer again by themselves whose last step has its results, unless it was interrupted.
            reason = "interrupted"
        yield from self._leave()
        yield from self._steers
        if reason == "error":
            yield {"type": "error", "errorText": _sentence(data["error"], data["stop_reason"], self._run_id)}
        elif data["status"] == RunStatus.CANCELLED:
            yield {"type": "abort", "reason": "cancelled"}
        yield from self._finish(reason)

    def _finish(self, reason: str) -> Iterator[Chunk]:
        yield from self._leave()
        self.over, self._awaiting, self.goes_on = True, False, None
        yield {"type": "finish", "finishReason": reason, "messageMetadata": {"runId": self._run_id}}

    def _nothing(self, event: StoredEvent, data: Mapping[str, Any]) -> Iterator[Chunk]:
        yield from ()


def _status(status: RunStatus, **facts: Any) -> Chunk:
    return {"type": "data-palaver-status", "data": {"status": STATUSES[status], **facts}, "transient": True}


def _below(action_id: str, facts: Mapping[str, Any]) -> Chunk:
    # The log of the conversation has nothing of it, so that no list of messages could show it.
    return {"type": "data-palaver-approval", "id": action_id, "data": dict(facts), "transient": True}


def _sentence(error: Mapping[str, Any] | None, stop_reason: str, run_id: str) -> str:
    """Return the sentence for a person, and what whoever runs the server looks for."""
    if error is None:
        said = "There was no time left for this." if stop_reason == StopReason.DEADLINE else ERRORS[ErrorClass.INTERNAL]
        return f"{said} ({stop_reason}, {run_id})"
    said = ERRORS.get(error["class"], ERRORS[ErrorClass.INTERNAL])
    return f"{said} ({error['class']}, {error['code']}, {run_id})"


Handle = Callable[[ChatProjection, StoredEvent, Mapping[str, Any]], Iterator[Chunk]]
HANDLERS: Final[Mapping[str, Handle]] = MappingProxyType(
    {
        EventKind.RUN_CREATED: ChatProjection._nothing,
        EventKind.RUN_QUEUED: ChatProjection._queued,
        EventKind.RUN_STARTED: ChatProjection._running,
        EventKind.RUN_WAITING: ChatProjection._waiting,
        EventKind.RUN_RETRYING: ChatProjection._retrying,
        EventKind.RUN_PAUSING: ChatProjection._nothing,
        EventKind.RUN_PAUSED: ChatProjection._paused,
        EventKind.RUN_RESUMED: ChatProjection._running,
        EventKind.RUN_REQUIRES_ACTION: ChatProjection._requires_action,
        EventKind.RUN_CANCELLING: ChatProjection._cancelling,
        EventKind.RUN_FINISHED: ChatProjection._finished,
        EventKind.STEP_STARTED: ChatProjection._step_started,
        EventKind.STEP_LOST: ChatProjection._nothing,
        EventKind.MESSAGE_DELTA: ChatProjection._delta,
        EventKind.REASONING_DELTA: ChatProjection._delta,
        EventKind.MESSAGE_CREATED: ChatProjection._message,
        EventKind.MESSAGE_DISCARDED: ChatProjection._discarded,
        EventKind.MESSAGES_WITHDRAWN: ChatProjection._nothing,
        EventKind.TOOL_PROGRESS: ChatProjection._progress,
        EventKind.TOOL_FINISHED: ChatProjection._result,
        EventKind.ACTION_REQUIRED: ChatProjection._action,
        EventKind.ACTION_RESOLVED: ChatProjection._resolved,
        EventKind.CHILD_ACTION_REQUIRED: ChatProjection._action_below,
        EventKind.CHILD_ACTION_RESOLVED: ChatProjection._resolved_below,
        EventKind.BUDGET_WARNING: ChatProjection._nothing,
        EventKind.CONVERSATION_CONDENSED: ChatProjection._nothing,
        EventKind.REASONING_DROPPED: ChatProjection._nothing,
        EventKind.STREAM_GAP: ChatProjection._gap,
        EventKind.STREAM_REWOUND: ChatProjection._rewound,
        EventKind.CONVERSATION_DELETED: ChatProjection._nothing,
    }
)
"""The reading of an event, by its kind."""
