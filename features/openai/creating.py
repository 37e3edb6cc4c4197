"""New responses: runs that begin, or runs that go on with what the client answers."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import orjson

from api.http.validation import validate
from palaver import operations
from palaver.errors import Refused, StateConflict, UnknownConversation, UnknownRun
from palaver.operations import Backend, Caller, Until
from palaver.schemas.conversation import Conversation, Fork
from palaver.schemas.models import Run, Submission
from palaver.vocabulary.lifecycle import RunStatus

from .agents import agent_of, options_of
from .answering import answer_calls, refuse_answers, refuse_past_question
from .begun import BegunResponse, RequestKey
from .ids import ResponseId
from .inputs import ClientInput
from .references import ReferringInput, resolved
from .servers import servers_of
from .states import BACKGROUND, MODEL, PREVIOUS, REQUEST, read_response
from .tables import TIERS
from .wire import ModelParams, ResponseCreate

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_PRIORITIES: Final[Mapping[str, int]] = {tier: priority for priority, tier in TIERS.items()}


async def begin_response(backend: Backend, caller: Caller, body: ResponseCreate, key: RequestKey) -> BegunResponse:
    """Begin a response. It is a run of its own, or goes on with the one that waits for what the input answers.

    Raises:
        Refused: everything that is wrong with it.
        UnknownRun, UnknownConversation, StateConflict: what it goes on with is not there, or is not as it would have to
            be; and whatever ``submit`` and ``act`` raise.
    """
    if body.previous_response_id is not None and body.conversation is not None:
        why = "cannot be together with conversation: both say what to go on with"
        raise Refused.at("/previous_response_id", why)
    if body.truncation not in (None, "disabled", "auto"):
        raise Refused.at("/truncation", "must be auto or disabled")
    beside = body.conversation_id
    if body.previous_response_id is not None:
        with suppress(UnknownRun):
            beside = ResponseId.read(body.previous_response_id).run_id
    referring = await resolved(backend, caller, body.input, beside=beside)
    if body.previous_response_id is not None:
        return await _after_response(backend, caller, body, referring, key)
    if body.conversation is not None:
        return await _in_conversation(backend, caller, body, referring, key)
    if referring.newest is not None and (begun := await _going_on(backend, caller, referring, key)):
        return begun
    given = referring.read()
    refuse_answers(given)
    return await _submitted(backend, caller, body, given, key)


async def _going_on(
    backend: Backend, caller: Caller, referring: ReferringInput, key: RequestKey
) -> BegunResponse | None:
    """Go on with the response that the last reference is about, if the input answers calls that it has ended with; what
    comes before is in its conversation. None if there is nothing to go on with: what was said is said anew."""
    before = referring.newest
    if before is None:
        return None
    run, projection = await read_response(backend, before)
    given = referring.answering(projection.output) if projection.ended_by_call else None
    over = run.status.terminal and projection.part == before.part
    if given is None or (over and not given.decisions):
        return None
    return await answer_calls(backend, caller, given, key, before, run, projection)


async def _after_response(
    backend: Backend, caller: Caller, body: ResponseCreate, referring: ReferringInput, key: RequestKey
) -> BegunResponse:
    try:
        before = ResponseId.read(body.previous_response_id or "")
        if caller.conversation is not None:
            await operations.keep_to_run(backend, caller, before.run_id)
        run, projection = await read_response(backend, before)
    except UnknownRun:
        raise Refused("run_not_found", "previous_response_id is not a response, or not any more.") from None
    given = referring.read(run.conversation_id)
    if given.answers:
        return await answer_calls(backend, caller, given, key, before, run, projection)
    if projection.ended_by_call:
        waits = not run.status.terminal and projection.part == before.part and projection.waiting
        if waits:
            refuse_past_question(run)
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
    told = {PREVIOUS: str(before), **_model_of(run)}
    if conversation.newest_run == run.id:
        reaction = "reject" if run.status.terminal else "enqueue"
        try:
            return await _submitted(backend, caller, body, given, key, conversation, told, on_conflict=reaction)
        except StateConflict as conflict:
            if conflict.code != "conversation_busy" or not run.status.terminal:
                raise
    elif not run.status.terminal:
        raise StateConflict("conversation_busy", run.id, "another response follows this one, which has not ended")
    operations.require_scope(caller, "runs:act")
    through = await _end_of(backend, run)
    forking = None if key.text is None else f"{key.text}:fork"
    copy, _ = await operations.fork(backend, run.conversation_id, Fork(through=through), caller, key=forking)
    return await _submitted(backend, caller, body, given, key, copy, told)


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
    backend: Backend, caller: Caller, body: ResponseCreate, referring: ReferringInput, key: RequestKey
) -> BegunResponse:
    conversation_id = body.conversation_id or ""
    if caller.conversation is not None:
        await operations.keep_to_conversation(backend, caller, conversation_id)
    conversation = await operations.read_conversation(backend, conversation_id)
    given = referring.read(conversation_id)
    if given.answers:
        if conversation.active_run is None:
            refuse_answers(given)
        run, projection = await read_response(backend, ResponseId(conversation.active_run or ""))
        newest = ResponseId(run.id, max(projection.part, 0))
        return await answer_calls(backend, caller, given, key, newest, run, projection)
    told: Mapping[str, str] = {}
    if body.model is None and conversation.newest_run is not None:
        with suppress(UnknownRun):
            told = _model_of(await operations.read_run(backend, conversation.newest_run))
    return await _submitted(backend, caller, body, given, key, conversation, told)


async def _submitted(
    backend: Backend,
    caller: Caller,
    body: ResponseCreate,
    given: ClientInput,
    key: RequestKey,
    conversation: Conversation | None = None,
    told: Mapping[str, str] = _NOTHING,
    *,
    on_conflict: str = "enqueue",
) -> BegunResponse:
    """Submit the run of a response, to the conversation that it goes on with. ``told`` are facts of what was before
    it, by the keys of its metadata."""
    fields = body.model_dump(mode="json")
    servers = servers_of(fields.get("tools") or ())
    options = {**options_of(fields), **servers.options}
    instructions = "\n\n".join(filter(None, (body.instructions, *given.instructions))) or None
    asked = body.model or told.get(MODEL)
    # The conversation's agent has the instructions of the request before in it: they would pile up.
    model = asked if options or instructions else body.model
    known = conversation if model is None else None
    agent, writers = await agent_of(model, options, instructions, backend, caller, known)
    if isinstance(agent, dict):
        agent = servers.held_to(agent)
    facts = {BACKGROUND: "true"} if body.background else {}
    if PREVIOUS in told:
        facts[PREVIOUS] = told[PREVIOUS]
    if asked is not None:
        facts[MODEL] = asked
    if key.request is not None:
        facts[REQUEST] = key.request
    submission = {**submission_of(body, agent, given.messages, facts), "secrets": servers.secrets}
    if conversation is not None:
        submission["conversation_id"] = conversation.id
        submission["on_conflict"] = on_conflict
    if body.max_tool_calls is not None:
        submission["budget"] = {**(submission.get("budget") or {}), "tool_calls": body.max_tool_calls}
    return await submit(backend, caller, submission, key.text, writers)


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


async def submit(
    backend: Backend, caller: Caller, submission: Mapping[str, Any], key: str | None, writers: Collection[str]
) -> BegunResponse:
    """Take on the run of a response. ``writers`` are as with `agent_of`."""
    read = validate(Submission, orjson.dumps(submission), submission, backend.providers)
    try:
        taken = await operations.submit(backend, read, caller, key=key, writers=writers)
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
