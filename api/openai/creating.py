"""New responses: runs that begin, or runs that go on with what the client answers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from palaver.errors import FieldError, Refused, StateConflict, UnknownConversation, UnknownRun
from palaver.schemas.actions import ApprovalDecision, Item, Steering, ToolOutput
from palaver.schemas.content import parts_from, text_of
from palaver.schemas.conversation import Conversation, Fork
from palaver.schemas.models import Run, Submission
from palaver.vocabulary.lifecycle import RunStatus

from .. import operations
from ..lenient import refusing
from ..operations import Backend, Caller, Until
from ..validation import validate
from .agents import agent_of, options_of
from .ids import ResponseId
from .inputs import ClientInput, read_input
from .projection import ResponseProjection
from .states import BACKGROUND, MODEL, PREVIOUS, REQUEST, read_response
from .wire import ModelParams, ResponseCreate

_PRIORITIES: Final[Mapping[str, int]] = {"flex": 7, "priority": 2}


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key under which a request has its effect once."""

    text: str | None
    chosen: bool
    """True if the client has chosen it; else it is made of the request."""
    request: str | None = None
    """The digest of the request, if the run is to be found by the key whatever has come behind it since."""


@dataclass(frozen=True, slots=True)
class BegunResponse:
    """A response that has begun."""

    response: ResponseId
    run: Run
    replayed: bool = False
    """An earlier request with the same key has begun it."""
    answers: bool = False
    """It goes on with what the input answers: it is no new run."""


async def begin_response(backend: Backend, caller: Caller, body: ResponseCreate, key: RequestKey) -> BegunResponse:
    """Begin a response. It is a run of its own, or goes on with the one that waits for what the input answers.

    Raises:
        Refused: everything that is wrong with it.
        UnknownRun, UnknownConversation, StateConflict: what it goes on with is not there, or is not as it would have to
            be; and whatever ``submit`` and ``act`` raise.
    """
    given = read_input(body.input)
    if body.previous_response_id is not None and body.conversation is not None:
        why = "cannot be together with conversation: both say what to go on with"
        raise Refused.at("/previous_response_id", why)
    if body.truncation not in (None, "disabled", "auto"):
        raise Refused.at("/truncation", "must be auto or disabled")
    if body.previous_response_id is not None:
        return await _after_response(backend, caller, body, given, key)
    if body.conversation is not None:
        return await _in_conversation(backend, caller, body, given, key)
    _refuse_answers(given)
    return await _submitted(backend, caller, body, given, key, {})


async def _after_response(
    backend: Backend, caller: Caller, body: ResponseCreate, given: ClientInput, key: RequestKey
) -> BegunResponse:
    try:
        before = ResponseId.read(body.previous_response_id or "")
        if caller.conversation is not None:
            await operations.keep_to_run(backend, caller, before.run_id)
        run, projection = await read_response(backend, before)
    except UnknownRun:
        raise Refused("run_not_found", "previous_response_id is not a response, or not any more.") from None
    if not projection.begun:
        raise Refused("run_not_found", "previous_response_id is not a response, or not any more.")
    if given.answers:
        return await _answered(backend, caller, given, key, before, run, projection)
    if projection.ended_by_call:
        waits = not run.status.terminal and projection.part == before.part and projection.waiting
        if waits:
            _refuse_past_question(run)
        why = "the response waits for the outputs of its calls" if waits else "the response ended with calls"
        raise StateConflict("pending_action", run.id, why)
    return await _behind(backend, caller, body, given, key, before, run)


async def _behind(
    backend: Backend,
    caller: Caller,
    body: ResponseCreate,
    given: ClientInput,
    key: RequestKey,
    before: ResponseId,
    run: Run,
) -> BegunResponse:
    """Go on with the conversation behind a response; with a copy of it, if it has gone on in another way since."""
    conversation = await operations.read_conversation(backend, run.conversation_id)
    told = {PREVIOUS: str(before), "conversation": run.conversation_id, **_model_of(run)}
    if _newest(conversation) == run.id:
        reaction = "reject" if run.status.terminal else "enqueue"
        try:
            return await _submitted(backend, caller, body, given, key, told, on_conflict=reaction)
        except StateConflict as conflict:
            if conflict.code != "conversation_busy" or not run.status.terminal:
                raise
    elif not run.status.terminal:
        raise StateConflict("conversation_busy", run.id, "another response follows this one, which has not ended")
    operations.require_scope(caller, "runs:act")
    through = await _end_of(backend, run)
    forking = None if key.text is None else f"{key.text}:fork"
    copy, _ = await operations.fork(backend, run.conversation_id, Fork(through=through), caller, key=forking)
    return await _submitted(backend, caller, body, given, key, {**told, "conversation": copy.id})


def _newest(conversation: Conversation) -> str | None:
    """Return the id of the run that was submitted to a conversation last; None if it has had none."""
    busy = [*conversation.queued_runs[-1:], *filter(None, [conversation.active_run])]
    outcome = conversation.last_outcome
    return busy[0] if busy else outcome.run_id if outcome else None


def _model_of(run: Run) -> dict[str, str]:
    """Return the model that a response was created with, if it is known."""
    return {MODEL: run.metadata[MODEL]} if MODEL in run.metadata else {}


async def _end_of(backend: Backend, run: Run) -> int:
    """Return the position in the log of a run's last entry."""
    position = 0
    async for page in operations.read_run_log(backend, run):
        position = page[-1].position
    return position


async def _in_conversation(
    backend: Backend, caller: Caller, body: ResponseCreate, given: ClientInput, key: RequestKey
) -> BegunResponse:
    named = body.conversation
    conversation_id = named if isinstance(named, str) or named is None else named.id
    if caller.conversation is not None:
        await operations.keep_to_conversation(backend, caller, conversation_id or "")
    conversation = await operations.read_conversation(backend, conversation_id or "")
    if given.answers:
        if conversation.active_run is None:
            _refuse_answers(given)
        run, projection = await read_response(backend, ResponseId(conversation.active_run or ""))
        before = ResponseId(run.id, max(projection.part, 0))
        run, projection = await read_response(backend, before)
        return await _answered(backend, caller, given, key, before, run, projection)
    told = {"conversation": conversation.id}
    newest = _newest(conversation)
    if body.model is None and newest is not None:
        with suppress(UnknownRun):
            told |= _model_of(await operations.read_run(backend, newest))
    return await _submitted(backend, caller, body, given, key, told)


async def _answered(
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
        _refuse_past_question(run)
        answered = {*given.outputs, *given.decisions}
        for action in run.pending_actions:
            if answered.isdisjoint((action.call_id, action.id)):
                why = f"the input has no answer to {action.call_id}: all calls of a response are answered together"
                raise StateConflict("pending_action", run.id, why)
    said = orjson.dumps([str(before), caller.name, *(item.model_dump(mode="json") for item in items)])
    chosen = key.text if key.chosen else f"openai:{hashlib.sha256(said).hexdigest()}"
    acted = await operations.act(backend, run.id, items, caller, key=chosen)
    return BegunResponse(before.next if projection.done else before, acted.run, acted.replayed, answers=True)


def _refuse_past_question(run: Run) -> None:
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


def _refuse_answers(given: ClientInput) -> None:
    """Refuse answers to calls of nobody."""
    if given.answers:
        why = "answers a call that is not in it: name the response that made it as previous_response_id"
        raise Refused.of_faults([FieldError("/input", "invalid_history", why)])


async def _submitted(
    backend: Backend,
    caller: Caller,
    body: ResponseCreate,
    given: ClientInput,
    key: RequestKey,
    told: Mapping[str, str],
    *,
    on_conflict: str = "enqueue",
) -> BegunResponse:
    conversation_id = told.get("conversation")
    known = None
    fields = body.model_dump(mode="json")
    options = options_of(fields)
    instructions = "\n\n".join(filter(None, (body.instructions, *given.instructions))) or None
    asked = body.model or told.get(MODEL)
    # The conversation's agent has the instructions of the request before in it: they would pile up.
    model = asked if options or instructions else body.model
    if model is None and conversation_id is not None:
        known = (await operations.read_conversation(backend, conversation_id)).agent
    agent = await agent_of(model, options, instructions, backend, caller, known)
    facts = {BACKGROUND: "true"} if body.background else {}
    if PREVIOUS in told:
        facts[PREVIOUS] = told[PREVIOUS]
    if asked is not None:
        facts[MODEL] = asked
    if key.request is not None:
        facts[REQUEST] = key.request
    submission = submission_of(body, agent, given.messages, facts)
    if conversation_id is not None:
        submission["conversation_id"] = conversation_id
        submission["on_conflict"] = on_conflict
    if body.max_tool_calls is not None:
        submission["budget"] = {**(submission.get("budget") or {}), "tool_calls": body.max_tool_calls}
    return await submit(backend, caller, submission, key.text)


def submission_of(
    body: ModelParams, agent: str | dict[str, Any] | None, messages: list[dict[str, Any]], facts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body of a submit, as the native API takes it."""
    own = {} if body.run is None else body.run.model_dump(mode="json", exclude_unset=True, exclude={"on_disconnect"})
    priority = _PRIORITIES.get(body.service_tier or "")
    return {
        "agent": agent,
        "input": messages,
        "metadata": {**(body.metadata or {}), **facts},
        **({} if priority is None else {"priority": priority}),
        **own,
    }


async def submit(backend: Backend, caller: Caller, submission: Mapping[str, Any], key: str | None) -> BegunResponse:
    """Take on the run of a response."""
    read = validate(Submission, orjson.dumps(submission), submission, backend.providers)
    try:
        taken = await operations.submit(backend, read, caller, key=key)
    except UnknownConversation:
        raise Refused("conversation_not_found", "There is no such conversation, or not any more.") from None
    return BegunResponse(ResponseId(taken.run.id), taken.run, taken.replayed)


def _is_over(run: Run) -> bool:
    """Tell whether nothing more of a run is going on until the client answers."""
    return run.status.terminal or run.status is RunStatus.REQUIRES_ACTION


async def await_end(backend: Backend, run: Run, seconds: float) -> Run:
    """Wait until a run has ended, or nothing of it goes on without the client; at most for so long."""
    until = time.monotonic() + seconds
    while not _is_over(run) and (left := until - time.monotonic()) > 0 and operations.may_watch(backend):
        further = Until.CHANGE if run.needs_somebody else Until.ACTION
        run = await operations.await_run(backend, run, further, left)
        if backend.closing.is_set():
            break
    return run
