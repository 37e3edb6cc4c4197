"""Calls that wait for an action, as chunks: what is asked, and how it was decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from api.kit.shown_run import OpenCalls

from .chunks import Chunk
from .values import input_of, question_of

_REASONS: Final = {"expired": "Nobody decided in time.", "cancelled": "The answer was stopped."}


class AwaitedCall(NamedTuple):
    """A call that waits for an action: its id, the one that the client has for it, its tool, and if it is for an
    approval."""

    call_id: str
    known_as: str
    tool: str
    approval: bool
    question: Chunk | None = None


class AwaitedCalls:
    """The calls of a run that wait for an action."""

    def __init__(self, calls: OpenCalls) -> None:
        self.idle = False
        """True while nothing else of the run is going on."""
        self._calls = calls
        self._by_action: dict[str, AwaitedCall] = {}
        self._denied: set[str] = set()

    def means(self, answers: frozenset[str]) -> bool:
        """Tell whether one of these actions or calls waits."""
        return any(action in answers or call.call_id in answers for action, call in self._by_action.items())

    def take_denied(self, known_as: str) -> bool:
        """Tell once whether a call was denied."""
        denied = known_as in self._denied
        self._denied.discard(known_as)
        return denied

    def ask(self, step: str, action: Mapping[str, Any]) -> Iterator[Chunk]:
        """Yield what is asked of a person."""
        known_as = self._calls.name_of(step, action["call_id"])
        if known_as is None:
            return
        question, approval = None, action["type"] == "approval"
        if action["type"] == "question":
            question = {"type": "data-palaver-question", "id": action["id"], "data": question_of(action, known_as)}
            yield question
        self._by_action[action["id"]] = AwaitedCall(action["call_id"], known_as, action["tool"], approval, question)
        if approval:
            about = {"expiresAt": action["expires_at"], "secondPerson": action["second_person"]}
            yield {
                "type": "tool-approval-request",
                "approvalId": action["id"],
                "toolCallId": known_as,
                "approvalDescriptor": about,
            }

    def resolve(self, data: Mapping[str, Any]) -> Iterator[Chunk]:
        """Yield the decision."""
        decision, awaited = data["decision"], self._by_action.pop(data["action_id"], None)
        approved = decision in ("approve", "edit")
        if approved or not self._by_action:
            self.idle = False
        if awaited is None:
            return
        if not approved:
            self._calls.settle(awaited.known_as)
        if awaited.question is not None:
            # The same id takes the place of the question.
            settled = {"decision": decision} | ({"response": data["response"]} if data.get("response") else {})
            yield awaited.question | {"data": awaited.question["data"] | settled}
        if not awaited.approval:
            return
        if not approved:
            self._denied.add(awaited.known_as)
        if decision == "edit":
            yield input_chunk(awaited.known_as, awaited.tool, data["arguments"], ours=True)
        told: Chunk = {"type": "tool-approval-response", "approvalId": data["action_id"], "approved": approved}
        why = data["reason"] or _REASONS.get(decision)
        yield told if why is None else told | {"reason": why}


def input_chunk(known_as: str, tool: str, arguments: str, *, ours: bool) -> Chunk:
    """Return a call with its arguments; ``ours`` is one that is made here, and not by the page."""
    chunk = {"type": "tool-input-available", "toolCallId": known_as, "toolName": tool, "input": input_of(arguments)}
    return chunk | {"dynamic": True, "providerExecuted": True} if ours else chunk


def below(action_id: str, facts: Mapping[str, Any]) -> Chunk:
    """Return what is to be said of a call of a run below. The log of the conversation has nothing of it, so that no
    list of messages could show it."""
    return {"type": "data-palaver-approval", "id": action_id, "data": dict(facts), "transient": True}
