"""One reducer of a run's events: what of it is open, told, taken back, called, answered, waited for and over.

It holds what clients of any dialect rely on: what is opened is closed before the end, and nothing comes behind that; a
call is told of before its result; text that was shown and is not stored is taken back; and at the end of a step its
text is that of the log, whatever was lost on the way. What it says follows from the events alone, so that a replay says
the same. Here a kind of event is a row of ``REDUCERS``; how a change looks to clients is a row of a dialect's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from palaver.events import EventKind
from palaver.operations import StoredEvent

from . import run_changes as changes
from .run_changes import Change, ShownPart
from .shown_run import ShownText, TextIn, text_in

KINDS: Final[Mapping[str, str]] = {EventKind.MESSAGE_DELTA: "text", EventKind.REASONING_DELTA: "reasoning"}
"""The kind of a part, by that of the delta."""


class RunView:
    """One run, or the part of it behind an answer, as one client is shown it."""

    def __init__(
        self, *, edge: float = 0, stops: bool = False, resends: bool = True, text_in: TextIn = text_in
    ) -> None:
        """``edge`` is the number of an event: up to there it is known how the run went on, so that waiting for an
        action is an end only if nothing came behind it. With ``stops`` the step ends where the run waits, and to wait
        for an action below it is to wait. Without ``resends`` a text that was taken back comes from elsewhere.
        ``text_in`` says what the text of a message is."""
        self.edge = edge
        self.over = False
        """True once the last change was told."""
        self.reached = 0
        """The number of the event that was read last."""
        self.goes_on: ShownPart | None = None
        """The part that the event before was more of: a delta of the same ``place`` is told by its frame alone."""
        self.wants_text = False
        """True if a text was taken back that is not told again here."""
        self.ends_with_calls = False
        """True if the last step ends with calls."""
        self.asked: dict[str, changes.ActionAsked] = {}
        """The calls that wait for an action, by the ids of the actions."""
        self.below: dict[str, Mapping[str, Any]] = {}
        """The events of those of runs below."""
        self._stops, self._resends, self._text_in = stops, resends, text_in
        self._step: str | None = None
        self._attempt: int | None = None
        self._open: ShownPart | None = None
        self._shown = False
        """True if there is something of the step that is taken back with it."""
        self.text = ShownText()
        """That of the step so far, as it was shown."""
        self._told: list[Change] = []
        """The changes by the present event."""
        self._torn = False
        """True if deltas of the step are missing: its text comes with its message."""
        self._calls: dict[tuple[str, str], changes.ShownCall] = {}
        """Those without a result, by the model step and the id."""
        self._call_ids: set[str] = set()
        self._settled: set[changes.ShownCall] = set()
        """Those of them that were settled otherwise than by letting them run: their results come at once."""
        self._idle = False
        """True while nothing else of the run is going on."""
        self._steered: list[changes.SteerTold] = []

    @property
    def waiting(self) -> bool:
        """True while an action is needed."""
        return (self._idle and not self._settled) or (self._stops and bool(self.below))

    def awaits(self, answers: frozenset[str]) -> bool:
        """Tell whether one of these actions or calls waits."""
        actions = [asked.action for asked in self.asked.values()]
        actions += [data["action"] for data in self.below.values()] if self._stops else []
        return any(not answers.isdisjoint((action["id"], action["call_id"])) for action in actions)

    def read(self, event: StoredEvent, data: Mapping[str, Any] | None = None) -> list[Change]:
        """Return the changes by an event, up to the end of the run or the place where it waits for an action. ``data``
        is its payload, if that was parsed before."""
        self.goes_on = None
        self._told = []
        if self.over:
            return self._told
        self.reached = event.seq
        reduce = REDUCERS.get(event.type)
        if reduce is not None:
            reduce(self, event, event.data if data is None else data)
        if event.seq >= self.edge:
            self._interrupt()
        return self._told

    def silence(self) -> list[Change]:
        """Return the changes by a silence: for a run that waits for an action it is an end at the latest then."""
        self._told = []
        self._interrupt()
        return self._told

    def _interrupt(self) -> None:
        if self.waiting and not self.over:
            self._end(changes.RunSuspended())

    def _end(self, change: Change) -> None:
        self._leave()
        self.over, self.goes_on = True, None
        self._told.append(change)

    # Steps and their texts.

    def _enter(self, step: str, attempt: int | None) -> None:
        if step == self._step:
            if attempt is not None and self._attempt is not None and attempt != self._attempt:
                self._take_back()
            self._attempt = attempt or self._attempt
            return
        self._leave()
        self._told += self._steered
        self._steered = []
        self._told.append(changes.StepBegun(step))
        self._step, self._attempt, self.ends_with_calls = step, attempt, False

    def _leave(self) -> None:
        self._close()
        if self._step is not None:
            self._told.append(changes.StepEnded(self._step))
        self._step = self._attempt = None
        self._keep()

    def _grow(self, kind: str, step: str, text: str) -> None:
        if self._open is None or self._open.kind != kind:
            self._close()
            self._open, self._shown = ShownPart(kind, step, self._attempt), True
            self._told.append(changes.PartOpened(self._open))
        self._told.append(changes.PartGrown(self._open, text))

    def _close(self) -> None:
        if self._open is not None:
            self._told.append(changes.PartClosed(self._open))
        self._open = None

    def _take_back(self) -> None:
        if self._shown:
            self.wants_text = self.wants_text or (bool(self.text) and not self._resends)
            self._told.append(changes.TakenBack(self._open))
        self._open = None
        self._keep()

    def _keep(self) -> None:
        """From here on nothing of what was shown is taken back."""
        self._shown = False
        self.text.forget()

    def _step_started(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if "/" not in data["step"]:
            self._enter(data["step"], data["attempt"])
            self._torn = False
        self._idle = False

    def _delta(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        step, text = data["step"], data["text"]
        self._enter(step, data["attempt"])
        if self._torn or not text:
            return
        self._grow(KINDS[event.type], step, text)
        if event.type == EventKind.MESSAGE_DELTA:
            self.text.add(len(text), text.encode())
        self.goes_on = self._open

    def _discarded(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._torn = False
        if data["step"] == self._step:
            self._take_back()

    def _attempt_failed(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        if "/" not in data["step"]:
            if data["step"] == self._step:
                self._take_back()
            self._told.append(changes.AttemptFailed(data["step"]))
        if event.type == EventKind.RUN_RETRYING:
            self._told.append(changes.StatusMoved(event.type, data))

    def _gap(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._torn = True

    def _message(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        message = data["message"]
        if message["role"] == "user" and data["steer"]:
            self._steered.append(changes.SteerTold(event.seq, message))
        if message["role"] != "assistant":
            return
        step = data["step"] or f"m{event.seq}"
        self._enter(step, None)
        if thoughts := data.get("thoughts"):
            self._grow("reasoning", step, thoughts)
        self._whole(self._text_in(message["content"]), step)
        self._close()
        self._told.append(changes.MessageTold(data))
        for call in message["tool_calls"]:
            self._called(step, call)
        # The step is in the log.
        self._torn = False
        self._keep()

    def _whole(self, text: str, step: str) -> None:
        """See that the client has the text of the step as it is in the log."""
        rest = self.text.rest_of(text)
        if rest is None:
            self._take_back()
            rest = text if self._resends else ""
        if rest:
            self._grow("text", step, rest)

    # Calls, and the actions that they wait for.

    def _called(self, step: str, call: Mapping[str, Any]) -> None:
        made = changes.ShownCall(step, call["id"], call["name"], call["arguments"], again=call["id"] in self._call_ids)
        self._call_ids.add(made.id)
        self._calls[step, made.id] = made
        self.ends_with_calls = True
        self._told.append(changes.CallTold(made))

    def _call_of(self, step: str, call_id: str) -> changes.ShownCall | None:
        """Return a call without a result, by its own step or by that which has made it."""
        return self._calls.get((step.partition("/")[0], call_id))

    def _progress(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        call = self._call_of(data["step"], data["call_id"])
        if call is not None:
            self._told.append(changes.CallProgressed(call, data["text"], data["fraction"]))

    def _result(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        call = self._call_of(data["step"], data["message"]["call_id"] or "")
        if call is not None:
            del self._calls[call.step, call.id]
            self._settled.discard(call)
            self._told.append(changes.CallReturned(call, data["message"]))

    def _action(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        action = data["action"]
        call = self._call_of(data["step"], action["call_id"])
        if call is not None:
            self.asked[action["id"]] = asked = changes.ActionAsked(action, call)
            self._told.append(asked)

    def _resolved(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        approved, asked = data["decision"] in ("approve", "edit"), self.asked.pop(data["action_id"], None)
        if approved or not self.asked:
            self._idle = False
        if asked is None:
            return
        call = asked.call
        if not approved and self._calls.get((call.step, call.id)) is call:
            self._settled.add(call)
        call.denied = asked.action["type"] == "approval" and not approved
        self._told.append(changes.ActionSettled(asked, approved, data))

    def _action_below(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self.below[data["action"]["id"]] = data
        self._told.append(changes.AskedBelow(data))
        if self._stops:
            self._leave()

    def _resolved_below(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self.below.pop(data["action_id"], None)
        self._told.append(changes.ResolvedBelow(data))

    def _requires_action(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._idle = True
        self._told.append(changes.ActionNeeded())
        if self._stops:
            self._leave()

    # The run.

    def _moved(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._told.append(changes.StatusMoved(event.type, data))

    def _cancelling(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        # No action is needed any more.
        self._idle = False
        self.below.clear()
        self._told.append(changes.StatusMoved(event.type, data))

    def _finished(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._leave()
        self._told += self._steered
        self._end(changes.RunEnded(data))

    def _rewound(self, event: StoredEvent, data: Mapping[str, Any]) -> None:
        self._end(changes.StreamLost())


_MOVES: Final = (
    EventKind.RUN_QUEUED, EventKind.RUN_STARTED, EventKind.RUN_WAITING, EventKind.RUN_PAUSED, EventKind.RUN_RESUMED,
)  # fmt: skip
Reduce = Callable[[RunView, StoredEvent, Mapping[str, Any]], None]
REDUCERS: Final[Mapping[str, Reduce]] = MappingProxyType(
    {
        **dict.fromkeys(_MOVES, RunView._moved),
        EventKind.RUN_RETRYING: RunView._attempt_failed,
        EventKind.RUN_REQUIRES_ACTION: RunView._requires_action,
        EventKind.RUN_CANCELLING: RunView._cancelling,
        EventKind.RUN_FINISHED: RunView._finished,
        EventKind.STEP_STARTED: RunView._step_started,
        EventKind.STEP_LOST: RunView._attempt_failed,
        EventKind.MESSAGE_DELTA: RunView._delta,
        EventKind.REASONING_DELTA: RunView._delta,
        EventKind.MESSAGE_CREATED: RunView._message,
        EventKind.MESSAGE_DISCARDED: RunView._discarded,
        EventKind.TOOL_PROGRESS: RunView._progress,
        EventKind.TOOL_FINISHED: RunView._result,
        EventKind.ACTION_REQUIRED: RunView._action,
        EventKind.ACTION_RESOLVED: RunView._resolved,
        EventKind.CHILD_ACTION_REQUIRED: RunView._action_below,
        EventKind.CHILD_ACTION_RESOLVED: RunView._resolved_below,
        EventKind.STREAM_GAP: RunView._gap,
        EventKind.STREAM_REWOUND: RunView._rewound,
    }
)
"""The reading of an event, by its kind. Others change nothing that clients are shown."""
