"""The route that a chat sends to: messages, answers to calls, and wishes for another answer."""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response

from api.http.audit import detail
from api.http.headers import EVENT_STREAM
from api.kit.signatures import AgentInPath
from palaver import operations
from palaver.errors import IdempotencyMismatch, Refused
from palaver.operations import Backend, Caller, Until
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.models import Run, Submission
from palaver.vocabulary.ids import is_id
from palaver.vocabulary.lifecycle import RunStatus

from .chunks import STREAM
from .dialect import AI_SDK, conversation_of_chat
from .following import stream_of
from .wire import ChatRequest, answers_in, id_of, user_message

_OURS: Final = re.compile(r"msg_[0-9]{1,13}")
"""The id that a list of messages has for one of the user's."""
_EDITED: Final = (
    "is a message that was sent before: what was said stays as it was. Send a new message, or regenerate the answer"
)
_LETTING_GO: Final = 5
"""Seconds for a run that is being stopped to end."""
_FAR: Final = 2000
"""Entries of the log, about, in which the message is looked for that an answer was given to."""
_EXAMPLE: Final[dict[str, Any]] = {
    "id": "chat-1",
    "messages": [{"id": "m-1", "role": "user", "parts": [{"type": "text", "text": "Where is my order?"}]}],
    "trigger": "submit-message",
}


@AI_SDK.route(
    "POST",
    "/ui/agents/{name}/chat",
    scope=("runs:submit", "runs:act", "actions:approve"),
    keeps_to=True,
    tag="ai_sdk",
    summary="Send a message, or answers to calls",
    examples={"a message": _EXAMPLE, "another answer": {**_EXAMPLE, "trigger": "regenerate-message"}},
    answers={200: ("The answer, as it is written.", None)},
    problems=(
        "idempotency_key_reused", "run_not_found", "conversation_not_found", "conversation_busy", "pending_action",
        "conversation_changed", "conversation_full", "queue_full", "steering_full", "nothing_to_answer",
        "tenant_erased", *AGENT_PROBLEMS,
        "unknown_price", "empty_input", "unsupported_content", "invalid_history", "too_many_runs", "tenant_queue_full",
        "store_nearly_full", "not_durable", "too_many_watchers", "run_ended", "unknown_action", "no_pending_action",
        "action_already_resolved", "action_expired", "wrong_action", "second_person_required", "unknown_position",
    ),
    also={EVENT_STREAM: STREAM},
    audited=False,
)  # fmt: skip
async def chat(backend: Backend, caller: Caller, name: AgentInPath, body: ChatRequest) -> Response:
    """The last message decides: one of the user's is a new turn, one of the assistant's brings answers to its calls.
    The same request again has no second effect, and is answered with the same answer."""
    operations.admit_watcher(backend)
    conversation_id = conversation_of_chat(backend, body.id)
    await operations.keep_to_named(backend, caller, conversation_id)
    if body.trigger == "regenerate-message":
        return stream_of(backend, await _regenerate(backend, caller, conversation_id, name, body))
    last = body.messages[-1]
    match last.get("role"):
        case "user":
            return stream_of(backend, await _say(backend, caller, conversation_id, name, body))
        case "assistant":
            return await _answer(backend, caller, conversation_id, body)
    raise Refused.at(f"{body.place}/role", "must be user, or assistant with answers to its calls")


async def _say(backend: Backend, caller: Caller, conversation_id: str, agent: str, body: ChatRequest) -> Run:
    """Take a message of the user on, once."""
    operations.require_scope(caller, "runs:submit")
    last, place = body.messages[-1], body.place
    message_id = id_of(last, place)
    if body.messageId is not None and _OURS.fullmatch(body.messageId):
        raise Refused.at("/messageId", _EDITED)
    submission = _submission(agent, body, input=(user_message(last, place),))
    try:
        taken = await operations.submit_to_named(
            backend, conversation_id, submission, caller, key=f"ai_sdk {conversation_id} {message_id}"
        )
    except IdempotencyMismatch:
        raise Refused.at(f"{place}/id", _EDITED) from None
    if taken.steered:
        detail(steered=True, run=taken.run.id)
    return taken.run


def _submission(agent: str, body: ChatRequest, **fields: Any) -> Submission:
    return Submission(
        agent=agent,
        on_conflict=body.on_conflict,
        metadata=body.metadata,
        tags=body.tags,
        **fields,
    )


async def _answer(backend: Backend, caller: Caller, conversation_id: str, body: ChatRequest) -> Response:
    """Bring answers to calls of a run, and go on with its answer behind them."""
    last, place = body.messages[-1], body.place
    run = await _run_of(backend, conversation_id, id_of(last, place), f"{place}/id")
    answers = answers_in(last, place)
    if not answers:
        raise Refused("nothing_to_answer", "The last message is the assistant's, and has no answer to a call of it.")
    # Also answers that are not awaited any more are answered with the run.
    operations.require_scope(caller, "runs:read", "runs:act", "actions:approve")
    detail(run=run.id, items=sorted(item.type for item in answers.values()))
    answered = await operations.answer_run(backend, run.id, answers, caller)
    return stream_of(backend, answered, operations.answered_actions(run, answers))


async def _regenerate(backend: Backend, caller: Caller, conversation_id: str, agent: str, body: ChatRequest) -> Run:
    """Go back to the message that a run has answered, and have it answered anew."""
    operations.require_scope(caller, "runs:submit")
    operations.require_scope(caller, "runs:act")
    conversation = await operations.read_conversation(backend, conversation_id)
    newest = conversation.active_run or (conversation.last_outcome.run_id if conversation.last_outcome else None)
    if body.messageId is None and newest is None:
        raise Refused("nothing_to_answer", "The chat has no answer that another one could take the place of.")
    run = await _run_of(backend, conversation_id, body.messageId or newest or "", "/messageId")
    if run.status is RunStatus.CANCELLING:
        run = await operations.await_run(backend, run, Until.TERMINAL, _LETTING_GO)
    position = await _position_before(backend, conversation_id, run.id)
    submission = _submission(agent, body.model_copy(update={"on_conflict": "reject"}), input=())
    # The old answer goes only if there may be another one.
    again = submission.model_copy(update={"conversation_id": conversation_id})
    await operations.check_submission(backend, again, caller)
    detail(run=run.id, withdrawn_after=position)
    await operations.withdraw(backend, conversation_id, position, caller, key=f"ai_sdk regenerate {run.id}")
    return (
        await operations.submit_to_named(
            backend, conversation_id, submission, caller, key=f"ai_sdk {conversation_id} again {run.id}"
        )
    ).run


async def _run_of(backend: Backend, conversation_id: str, message_id: str, pointer: str) -> Run:
    """Return the run whose answer a message is.

    Raises:
        Refused: it is none of this chat's.
    """
    if is_id("run", message_id):
        run = await operations.read_run(backend, message_id)
        if run.conversation_id == conversation_id:
            return run
    raise Refused.at(pointer, "is not the id of an answer in this chat")


async def _position_before(backend: Backend, conversation_id: str, run_id: str) -> int:
    """Return the position of the message that a run has answered.

    Raises:
        Refused: it is too far back, or not there any more.
    """
    looked, met = 0, False
    async with aclosing(operations.read_log(backend, conversation_id, newest_first=True)) as pages:
        async for page in pages:
            for entry in page:
                # Its entries may be withdrawn: the same request again finds the same place.
                met = met or entry.run_id == run_id
                if met and operations.begins_turn(entry):
                    return entry.position
            looked += len(page)
            if looked >= _FAR:
                break
    raise Refused("unknown_position", "The message before this answer is too far back, or not there any more.")
