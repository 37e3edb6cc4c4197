"""Changes of a conversation's log without a run."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.conversation import AppendedMessages, Conversation, Fork, SideAnswer
from palaver.schemas.fields import AtMost, Strict
from palaver.schemas.models import Message

from ..http.answers import answer
from ..http.headers import MAX_WAIT, IdempotencyKey
from ..http.queries import FARTHEST
from .answers import REPLAYED, answer_run, headers_of
from .dialect import NATIVE, ConversationId
from .links import Run, location_of


class Question(Strict):
    """A question beside the conversation."""

    question: Annotated[str, AtMost("input_text"), Field(min_length=1)]
    timeout: Annotated[float, Field(ge=1, le=MAX_WAIT)] = 30.0
    """Seconds that the answer may take."""


class Withdrawal(Strict):
    """The place to go back to."""

    after: Annotated[int, Field(ge=0, le=FARTHEST)]
    """The position in the log behind which models see nothing any more; 0 for all of it."""


class NewMessages(Strict):
    """Words of the user."""

    input: Annotated[str | tuple[Message, ...], AtMost("input_text", items="input_messages")]
    """A text, or messages of the role user."""


@NATIVE.route(
    "POST",
    "/v1/conversations/{conversation_id}/messages",
    scope="runs:submit",
    tag="conversations",
    summary="Say something without a run",
    examples={"words": {"input": "By the way, I like trains."}},
    answers={
        201: ("In the log. `Idempotency-Replayed: true`: it was before.", AppendedMessages),
        202: ("Taken into the run that is active.", AppendedMessages),
    },
    problems=(
        "idempotency_key_reused", "conversation_not_found", "conversation_full", "steering_full", "empty_input",
        "unsupported_content", "invalid_history", "store_nearly_full", "not_durable", "agent_not_allowed",
    ),
)  # fmt: skip
async def append(
    backend: Backend, caller: Caller, conversation_id: ConversationId, key: IdempotencyKey, body: NewMessages
) -> Response:
    """No model is called: the next run answers it, and one with an empty `input` answers nothing else. An active run
    sees it in its next model call."""
    taken = await operations.append(backend, conversation_id, body.input, caller, key=key)
    appended = AppendedMessages(position=taken.position, run_id=taken.run_id)
    return answer(appended, 201 if taken.run_id is None else 202, REPLAYED if taken.replayed else None)


_AS_IT_IS: Final = Fork.model_construct()


@NATIVE.route(
    "POST",
    "/v1/conversations/{conversation_id}/withdraw",
    scope="runs:act",
    tag="conversations",
    summary="Go back to an earlier place",
    examples={"behind the fourth entry": {"after": 4}},
    answers={200: ("The conversation by that. `Idempotency-Replayed: true`: it was done before.", Conversation)},
    problems=(
        "idempotency_key_reused", "conversation_not_found", "conversation_busy", "unknown_position", "not_durable",
        "agent_not_allowed",
    ),
)  # fmt: skip
async def withdraw(
    backend: Backend, caller: Caller, conversation_id: ConversationId, key: IdempotencyKey, body: Withdrawal
) -> Response:
    """Models do not see any more what follows. It stays in the log, marked as `withdrawn`; turns stay whole."""
    conversation, replayed = await operations.withdraw(backend, conversation_id, body.after, caller, key=key)
    return answer(conversation, headers=REPLAYED if replayed else None)


@NATIVE.route(
    "POST",
    "/v1/conversations/{conversation_id}/fork",
    scope="runs:act",
    tag="conversations",
    summary="Begin another conversation with the log of this one",
    examples={"up to a position": {"through": 4, "title": "By train instead"}},
    answers={
        201: ("Begun. `Location` is the new conversation.", Conversation),
        200: ("An earlier request has made it.", Conversation),
    },
    problems=(
        *AGENT_PROBLEMS, "idempotency_key_reused", "conversation_not_found", "conversation_busy",
        "conversation_changed", "unknown_position", "secrets_broken", "tenant_erased", "store_nearly_full",
        "not_durable",
    ),
)  # fmt: skip
async def fork(
    backend: Backend, caller: Caller, conversation_id: ConversationId, key: IdempotencyKey, body: Fork = _AS_IT_IS
) -> Response:
    """It has all messages up to there, and goes its own way. To fork and run at once from a step of a run is `POST
    /v1/runs/{run_id}/retry`."""
    made, there = await operations.fork(backend, conversation_id, body, caller, key=key)
    location = location_of(f"/v1/conversations/{made.id}")
    return answer(made, 200 if there else 201, {**location, **REPLAYED} if there else location)


@NATIVE.route(
    "POST",
    "/v1/conversations/{conversation_id}/ask",
    scope="runs:submit",
    tag="conversations",
    summary="Ask beside the conversation",
    examples={"for the list": {"question": "What is this about, in five words?"}},
    answers={200: ("What the model answered.", SideAnswer)},
    problems=(
        *AGENT_PROBLEMS, "conversation_not_found", "conversation_changed", "conversation_full", "no_answer",
        "empty_input", "too_many_runs", "tenant_queue_full", "too_many_watchers", "store_nearly_full", "not_durable",
    ),
    audited=False,
)  # fmt: skip
async def ask(backend: Backend, caller: Caller, conversation_id: ConversationId, body: Question) -> Response:
    """Its agent answers with all messages in view, in one model call and without its tools. The conversation goes on
    meanwhile, and has no trace of it."""
    return answer(await operations.ask(backend, conversation_id, body.question, caller, seconds=body.timeout))


@NATIVE.route(
    "POST",
    "/v1/conversations/{conversation_id}/condense",
    scope="runs:submit",
    tag="conversations",
    summary="Condense a conversation",
    answers={202: ("A run does it. `Location` is that run; `Idempotency-Replayed: true`: it was begun before.", Run)},
    problems=(
        "idempotency_key_reused", "conversation_not_found", "conversation_busy", "conversation_full",
        "conversation_changed", "nothing_to_condense", "no_agent", "too_many_runs",
        "tenant_queue_full", "store_nearly_full", "not_durable", "policy_violation",
        "agent_not_allowed",
    ),
)  # fmt: skip
async def condense(backend: Backend, caller: Caller, conversation_id: ConversationId, key: IdempotencyKey) -> Response:
    """Its agent's model summarises the older part; models see that in place of it from then on. The log stays whole."""
    taken = await operations.condense(backend, conversation_id, caller, key=key)
    return answer_run(taken.run, 202, headers_of(taken))
