"""Answers to the calls that a response has ended with: its run goes on."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from api.kit.lenient import refusing
from palaver import operations
from palaver.errors import FieldError, Refused, StateConflict
from palaver.operations import Backend, Caller
from palaver.schemas.actions import ApprovalDecision, Item, Steering, ToolOutput
from palaver.schemas.content import parts_from, text_of
from palaver.schemas.models import Run

from .begun import BegunResponse, RequestKey
from .ids import ResponseId
from .inputs import ClientInput
from .projection import ResponseProjection


async def answer_calls(
    backend: Backend,
    caller: Caller,
    given: ClientInput,
    key: RequestKey,
    before: ResponseId,
    run: Run,
    projection: ResponseProjection,
) -> BegunResponse:
    """Answer the calls that a response has ended with. The same answers again name the same response. One that goes on
    takes answers for the runs below it, and stays the response that it is."""
    if given.instructions:
        why = "cannot be changed while a response goes on"
        raise Refused.of_faults([FieldError("/instructions", "unsupported_option", why)])
    items = _items(given)
    if projection.part == before.part:
        refuse_past_question(run)
        answered = {*given.outputs, *given.decisions}
        for action in run.pending_actions:
            if answered.isdisjoint((action.call_id, action.id)):
                why = f"the input has no answer to {action.call_id}: all calls of a response are answered together"
                raise StateConflict("pending_action", run.id, why)
    said = orjson.dumps([str(before), caller.identity, *(item.model_dump(mode="json") for item in items)])
    chosen = key.text if key.chosen else f"openai:{hashlib.sha256(said).hexdigest()}"
    acted = await operations.act(backend, run.id, items, caller, key=chosen)
    goes_on = before.next if projection.has_ended(before.part) else before
    return BegunResponse(goes_on, acted.run, acted.replayed, answers=True)


def refuse_past_question(run: Run) -> None:
    """Refuse whatever would go on with a run in which a server waits for the answer to a question. Clients of OpenAI's
    API have no words for it."""
    for action in run.pending_actions:
        if action.type == "question":
            why = (
                f"the response waits for the answer to the question {action.id}: POST /v1/runs/{run.id}/input takes it"
            )
            raise StateConflict("pending_action", run.id, why)


def _items(given: ClientInput) -> list[Item]:
    items: list[Item] = []
    for call_id, output in given.outputs.items():
        with refusing("/input"):
            items.append(ToolOutput(type="tool_output", call_id=call_id, output=_output(output)))
    for action_id, (approve, reason) in given.decisions.items():
        with refusing("/input"):
            items.append(
                ApprovalDecision(
                    type="approval",
                    action_id=action_id,
                    decision="approve" if approve else "deny",
                    reason=None if approve else reason or None,
                )
            )
    for message in given.messages:
        if message["role"] != "user" or not isinstance(message["content"], str):
            why = "has messages other than the user's text beside the answers to calls"
            raise Refused.of_faults([FieldError("/input", "unsupported_content", why)])
        with refusing("/input"):
            items.append(Steering(type="message", content=message["content"]))
    return items


def _output(output: Any) -> Any:
    if isinstance(output, str):
        return output
    with refusing("/input/output"):
        return text_of(parts_from(output))


def refuse_answers(given: ClientInput) -> None:
    """Refuse answers to unknown calls."""
    if given.answers:
        why = "answers a call that is not in it: name the response that made it as previous_response_id"
        raise Refused.of_faults([FieldError("/input", "invalid_history", why)])
