"""A run in events of AG-UI: a table of what each change of it is there. Text that was shown and is not stored is taken
back by a snapshot, since no event does that."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, ClassVar, Final

from api.kit import run_changes as changes
from api.kit.projections import FollowedProjection, WrittenDeltas, written
from api.kit.run_view import RunView
from api.kit.shown_run import failure_sentence, status_in
from palaver.errors import ErrorClass
from palaver.schemas.arguments import as_json

from .frames import VERSION, AgEvent, call_name, message_id, reasoning_id, result_id
from .interrupts import outcome_of
from .messages import result_text
from .tables import OUTCOMES

_LOST: Final = "The server has lost the last moments of this run: ask again."


def _message_of(run_id: str, part: changes.ShownPart) -> tuple[str, str]:
    """Return the kind of the message that a part is, and its id."""
    if part.kind == "text":
        return "TEXT_MESSAGE", message_id(run_id, part.step)
    return "REASONING_MESSAGE", reasoning_id(run_id, part.step, part.attempt)


def _grown(run_id: str, part: changes.ShownPart, text: str) -> AgEvent:
    kind, message = _message_of(run_id, part)
    return {"type": f"{kind}_CONTENT", "messageId": message, "delta": text}


def _written(run_id: str, part: changes.ShownPart, text: str) -> bytes:
    return written([_grown(run_id, part, text)])


class RunProjection(FollowedProjection):
    """A run, or the part of it behind an answer, as one run of AG-UI."""

    deltas: ClassVar = WrittenDeltas(_written)

    def __init__(
        self,
        thread_id: str,
        ag_run_id: str,
        run_id: str,
        *,
        edge: float = 0,
        answers: frozenset[str] = frozenset(),
        known: frozenset[str] = frozenset(),
    ) -> None:
        """``edge`` is the number of an event: up to there it is known how the run went on. ``known`` are the calls, as
        clients name them, whose results the client has: it would show them once more."""
        super().__init__(RunView(edge=edge, stops=True, resends=False), answers)
        self._thread_id, self._ag_run_id, self._run_id = thread_id, ag_run_id, run_id
        self._known = known

    def opening(self) -> AgEvent:
        """Return the first event."""
        return self._about("RUN_STARTED", protocolVersion=VERSION)

    def _about(self, kind: str, **more: Any) -> AgEvent:
        return {"type": kind, "threadId": self._thread_id, "runId": self._ag_run_id, **more}

    def _name(self, call: changes.ShownCall) -> str:
        return call_name(self._run_id, call.step, call.id)

    def _step_begun(self, change: changes.StepBegun) -> Iterator[AgEvent]:
        yield {"type": "STEP_STARTED", "stepName": change.step}

    def _step_ended(self, change: changes.StepEnded) -> Iterator[AgEvent]:
        yield {"type": "STEP_FINISHED", "stepName": change.step}

    def _opened(self, change: changes.PartOpened) -> Iterator[AgEvent]:
        kind, message = _message_of(self._run_id, change.part)
        thought = change.part.kind == "reasoning"
        if thought:
            yield {"type": "REASONING_START", "messageId": message}
        yield {"type": f"{kind}_START", "messageId": message, "role": "reasoning" if thought else "assistant"}

    def _more(self, change: changes.PartGrown) -> Iterator[AgEvent]:
        yield _grown(self._run_id, *change)

    def _closed(self, change: changes.PartClosed) -> Iterator[AgEvent]:
        kind, message = _message_of(self._run_id, change.part)
        yield {"type": f"{kind}_END", "messageId": message}
        if change.part.kind == "reasoning":
            yield {"type": "REASONING_END", "messageId": message}

    def _taken_back(self, change: changes.TakenBack) -> Iterator[AgEvent]:
        if change.open is not None:
            yield from self._closed(changes.PartClosed(change.open))

    def _called(self, change: changes.CallTold) -> Iterator[AgEvent]:
        call, name = change.call, self._name(change.call)
        parent = message_id(self._run_id, call.step)
        yield {"type": "TOOL_CALL_START", "toolCallId": name, "toolCallName": call.tool, "parentMessageId": parent}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": name, "delta": as_json(call.arguments)}
        yield {"type": "TOOL_CALL_END", "toolCallId": name}

    def _progressed(self, change: changes.CallProgressed) -> Iterator[AgEvent]:
        value = {"toolCallId": self._name(change.call), "text": change.text, "fraction": change.fraction}
        yield {"type": "CUSTOM", "name": "palaver.progress", "value": value}

    def _returned(self, change: changes.CallReturned) -> Iterator[AgEvent]:
        call, name = change.call, self._name(change.call)
        if name not in self._known:
            yield {
                "type": "TOOL_CALL_RESULT",
                "messageId": result_id(self._run_id, call.step, call.id),
                "toolCallId": name,
                "role": "tool",
                "content": result_text(change.message["content"]),
            }

    def _moved(self, change: changes.StatusMoved) -> Iterator[AgEvent]:
        status, why = status_in(change.kind, change.data)
        yield {"type": "CUSTOM", "name": "palaver.status", "value": {"status": status, **why}}

    def _interrupted(self, change: changes.RunSuspended) -> Iterator[AgEvent]:
        asked, below = self.view.asked.values(), self.view.below.values()
        outcome = outcome_of(self._run_id, [(each.action, self._name(each.call)) for each in asked], below)
        yield self._about("RUN_FINISHED", outcome=outcome, result={"runId": self._run_id})

    def _ended(self, change: changes.RunEnded) -> Iterator[AgEvent]:
        reason, error = change.data["stop_reason"], change.data["error"]
        outcome = OUTCOMES.get(reason, "success")
        if outcome == "error":
            message = f"{failure_sentence(error, reason)} ({self._run_id})"
            yield {"type": "RUN_ERROR", "message": message, "code": reason if error is None else error["class"]}
        else:
            result = {"runId": self._run_id, "stopReason": reason}
            yield self._about("RUN_FINISHED", outcome={"type": outcome}, result=result)

    def _lost(self, change: changes.StreamLost) -> Iterator[AgEvent]:
        yield {"type": "RUN_ERROR", "message": _LOST, "code": ErrorClass.STORAGE}

    rows: ClassVar = MappingProxyType(
        {
            changes.StepBegun: _step_begun,
            changes.StepEnded: _step_ended,
            changes.PartOpened: _opened,
            changes.PartGrown: _more,
            changes.PartClosed: _closed,
            changes.TakenBack: _taken_back,
            changes.CallTold: _called,
            changes.CallProgressed: _progressed,
            changes.CallReturned: _returned,
            changes.StatusMoved: _moved,
            changes.RunSuspended: _interrupted,
            changes.RunEnded: _ended,
            changes.StreamLost: _lost,
        }
    )
