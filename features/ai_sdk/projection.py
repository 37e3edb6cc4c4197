"""A run in chunks of the UI message stream: a table of what each change of it is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from api.kit import run_changes as changes
from api.kit.projections import FollowedProjection, WrittenDeltas, written
from api.kit.run_view import RunView
from api.kit.shown_run import failure_sentence, status_in, text_in
from palaver.vocabulary.lifecycle import RunStatus

from .chunks import Chunk
from .tables import FINISHES, STATUSES, WAITS
from .values import input_of, output_of, parts_of, question_of, settled_below, waiting_below

_REASONS: Final = {"expired": "Nobody decided in time.", "cancelled": "The answer was stopped."}
_LOST: Final = "The server has lost the last moments of this answer: load the page again. (storage, stream_rewound, {})"


def _id(part: changes.ShownPart) -> str:
    return f"{part.kind}-{part.step}"


def _grown(run_id: str, part: changes.ShownPart, text: str) -> Chunk:
    return {"type": f"{part.kind}-delta", "id": _id(part), "delta": text}


def _written(run_id: str, part: changes.ShownPart, text: str) -> bytes:
    return written([_grown(run_id, part, text)])


def _known_as(call: changes.ShownCall) -> str:
    """Return the id of a call: clients know it by that alone."""
    return f"{call.id}~{call.step}" if call.again else call.id


class ChatProjection(FollowedProjection):
    """The answer of one run, as a client follows it."""

    deltas: ClassVar = WrittenDeltas(_written)

    def __init__(
        self,
        run_id: str,
        *,
        client_tools: frozenset[str] = frozenset(),
        edge: float = 0,
        answers: frozenset[str] = frozenset(),
    ) -> None:
        """``edge`` is the number of an event: up to there it is known how the run went on."""
        super().__init__(RunView(edge=edge), answers)
        self._run_id = run_id
        self._client_tools = client_tools

    def opening(self) -> Chunk:
        """Return the first chunk: the id of the message is that of the run."""
        return {"type": "start", "messageId": self._run_id, "messageMetadata": {"runId": self._run_id}}

    def _step_begun(self, change: changes.StepBegun) -> Iterator[Chunk]:
        yield {"type": "start-step"}

    def _step_ended(self, change: changes.StepEnded) -> Iterator[Chunk]:
        yield {"type": "finish-step"}

    def _opened(self, change: changes.PartOpened) -> Iterator[Chunk]:
        yield {"type": f"{change.part.kind}-start", "id": _id(change.part)}

    def _more(self, change: changes.PartGrown) -> Iterator[Chunk]:
        yield _grown(self._run_id, *change)

    def _closed(self, change: changes.PartClosed) -> Iterator[Chunk]:
        yield {"type": f"{change.part.kind}-end", "id": _id(change.part)}

    def _taken_back(self, change: changes.TakenBack) -> Iterator[Chunk]:
        yield {"type": "reset-step"}

    def _answered(self, change: changes.MessageTold) -> Iterator[Chunk]:
        yield from (part for part in parts_of(change.data["message"]["content"]) if part["type"] == "file")

    def _steered(self, change: changes.SteerTold) -> Iterator[Chunk]:
        parts = parts_of(change.message["content"])
        yield {"type": "steering-message", "id": f"{self._run_id}-{change.seq}", "parts": parts}

    def _called(self, change: changes.CallTold) -> Iterator[Chunk]:
        yield self._input(change.call, change.call.arguments, ours=change.call.tool not in self._client_tools)

    def _input(self, call: changes.ShownCall, arguments: str, *, ours: bool) -> Chunk:
        """Return a call with its arguments; ``ours`` is one that is made here, and not by the page."""
        about = {"toolCallId": _known_as(call), "toolName": call.tool, "input": input_of(arguments)}
        return {"type": "tool-input-available", **about} | ({"dynamic": True, "providerExecuted": True} if ours else {})

    def _progressed(self, change: changes.CallProgressed) -> Iterator[Chunk]:
        fraction = {} if change.fraction is None else {"fraction": change.fraction}
        told = {"toolCallId": _known_as(change.call), "text": change.text, **fraction}
        yield {"type": "data-palaver-progress", "data": told, "transient": True}

    def _returned(self, change: changes.CallReturned) -> Iterator[Chunk]:
        known_as, content = _known_as(change.call), change.message["content"]
        if change.call.denied:
            yield {"type": "tool-output-denied", "toolCallId": known_as}
        elif change.message["is_error"]:
            yield {"type": "tool-output-error", "toolCallId": known_as, "errorText": text_in(content)}
        else:
            yield {"type": "tool-output-available", "toolCallId": known_as, "output": output_of(content)}

    def _asked(self, change: changes.ActionAsked) -> Iterator[Chunk]:
        action, known_as = change.action, _known_as(change.call)
        if action["type"] == "question":
            yield {"type": "data-palaver-question", "id": action["id"], "data": question_of(action, known_as)}
        elif action["type"] == "approval":
            about = {"expiresAt": action["expires_at"], "secondPerson": action["second_person"]}
            ids = {"approvalId": action["id"], "toolCallId": known_as}
            yield {"type": "tool-approval-request", **ids, "approvalDescriptor": about}

    def _resolved(self, change: changes.ActionSettled) -> Iterator[Chunk]:
        (action, call), data = change.asked, change.data
        if action["type"] == "question":
            # The same id takes the place of the question.
            settled = {"decision": data["decision"]} | ({"response": data["response"]} if data["response"] else {})
            asked = question_of(action, _known_as(call))
            yield {"type": "data-palaver-question", "id": action["id"], "data": asked | settled}
        elif action["type"] == "approval":
            if data["decision"] == "edit":
                yield self._input(call, data["arguments"], ours=True)
            why = data["reason"] or _REASONS.get(data["decision"])
            told = {"type": "tool-approval-response", "approvalId": action["id"], "approved": change.approved}
            yield told if why is None else told | {"reason": why}

    def _asked_below(self, change: changes.AskedBelow) -> Iterator[Chunk]:
        yield _below(change.data["action"]["id"], waiting_below(change.data))

    def _resolved_below(self, change: changes.ResolvedBelow) -> Iterator[Chunk]:
        yield _below(change.data["action_id"], settled_below(change.data))

    def _moved(self, change: changes.StatusMoved) -> Iterator[Chunk]:
        status, why = status_in(change.kind, change.data)
        said = {"text": WAITS.get(why["reason"], "")} if why else {}
        yield {"type": "data-palaver-status", "data": {"status": STATUSES[status], **said, **why}, "transient": True}

    def _ended(self, change: changes.RunEnded) -> Iterator[Chunk]:
        data, stop = change.data, change.data["stop_reason"]
        reason = FINISHES.get(stop, "other")
        if reason == "other" and self.view.ends_with_calls:
            # Clients send an answer again by themselves whose last step has its results, unless it was interrupted.
            reason = "interrupted"
        if reason == "error":
            error = data["error"]
            # What the operator of the server looks for stands behind the sentence.
            cause = stop if error is None else f"{error['class']}, {error['code']}"
            text = f"{failure_sentence(error, stop)} ({cause}, {self._run_id})"
            yield {"type": "error", "errorText": text}
        elif data["status"] == RunStatus.CANCELLED:
            yield {"type": "abort", "reason": "cancelled"}
        yield self._finish(reason)

    def _lost(self, change: changes.StreamLost) -> Iterator[Chunk]:
        yield {"type": "error", "errorText": _LOST.format(self._run_id)}
        yield self._finish("error")

    def _interrupted(self, change: changes.RunSuspended) -> Iterator[Chunk]:
        yield self._finish("tool-calls")

    def _finish(self, reason: str) -> Chunk:
        return {"type": "finish", "finishReason": reason, "messageMetadata": {"runId": self._run_id}}

    rows: ClassVar = MappingProxyType(
        {
            changes.StepBegun: _step_begun,
            changes.StepEnded: _step_ended,
            changes.PartOpened: _opened,
            changes.PartGrown: _more,
            changes.PartClosed: _closed,
            changes.TakenBack: _taken_back,
            changes.MessageTold: _answered,
            changes.SteerTold: _steered,
            changes.CallTold: _called,
            changes.CallProgressed: _progressed,
            changes.CallReturned: _returned,
            changes.ActionAsked: _asked,
            changes.ActionSettled: _resolved,
            changes.AskedBelow: _asked_below,
            changes.ResolvedBelow: _resolved_below,
            changes.StatusMoved: _moved,
            changes.RunEnded: _ended,
            changes.StreamLost: _lost,
            changes.RunSuspended: _interrupted,
        }
    )


def _below(action_id: str, facts: Mapping[str, Any]) -> Chunk:
    """Return what is to be said of a call of a run below. The log of the conversation has nothing of it, so that no
    list of messages could show it."""
    return {"type": "data-palaver-approval", "id": action_id, "data": dict(facts), "transient": True}
