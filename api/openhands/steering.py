"""What is done to a conversation: say something, run, pause, confirm."""

from __future__ import annotations

from typing import Any, Final, Literal
from uuid import UUID

from starlette.responses import Response

from palaver.errors import Fault, Refused
from palaver.schemas.conversation import ConversationPatch

from .. import operations
from ..headers import IdempotencyKey
from ..operations import Backend, Caller
from .answers import OpenHandsSuccess, done
from .confirmation import Policy, approvals
from .content import GivenContent, user_message
from .dialect import OPENHANDS, ConversationUuid
from .fields import Known
from .keeping import keep, with_its_agent
from .looking import Seen, look
from .running import begin_run, begin_unless_running, pause, reject
from .state import Kept
from .statuses import ExecutionStatus

_PLACE: Final = "/openhands/api/conversations/{conversation}"
_RUN_PROBLEMS: Final = (
    "conversation_not_found", "conversation_busy", "nothing_to_answer", "no_agent", "too_many_runs", "queue_full",
    "conversation_full", "store_nearly_full", "not_durable", "conversation_moved_on", "conversation_changed",
)  # fmt: skip


class SendMessage(Known):
    """What a user says."""

    role: Literal["user"] = "user"
    content: GivenContent
    run: bool = False


class Confirmation(Known):
    """A decision on all calls that wait."""

    accept: bool
    reason: str = "User rejected the action"


class NewPolicy(Known):
    """Which calls wait from the next run on."""

    policy: Policy


class NewAnalyzer(Known):
    """What judges how risky a call is."""

    security_analyzer: dict[str, Any] | None = None


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/events",
    tag="openhands",
    summary="Send a message",
    answers={200: ("Taken.", OpenHandsSuccess)},
    problems=(*_RUN_PROBLEMS, "steering_full", "idempotency_key_reused"),
)
async def send_message(
    backend: Backend, caller: Caller, conversation: ConversationUuid, key: IdempotencyKey, wanted: SendMessage
) -> Response:
    """The user's words. A run that is going on is told them by its next model call. With `run` they are said also where
    nothing can be run now: then ask to run, or send them again with the same `Idempotency-Key`. Without one they are
    said anew, as nothing tells words that are sent again from those that are said twice."""
    id = operations.conversation_of(backend, conversation)
    if wanted.run and (await operations.read_conversation(backend, id)).agent is None:
        # Said before anything is added, which a client would add again.
        raise Refused.of_faults([Fault("/run", "no_agent", "the conversation has no agent that could run")])
    appended = await operations.append(backend, id, [user_message(wanted.content)], caller, key=key)
    if wanted.run:
        seen = await look(backend, conversation)
        # Sent again, they do not approve or resume what has come of them meanwhile.
        if not appended.replayed or (seen.active is None and seen.unanswered):
            await begin_unless_running(backend, caller, seen)
    return await _once_told(backend, conversation)


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/run",
    tag="openhands",
    summary="Run",
    answers={200: ("It runs, or waits for its turn: `execution_status` is running either way.", OpenHandsSuccess)},
    problems=_RUN_PROBLEMS,
)
async def run_conversation(backend: Backend, caller: Caller, conversation: ConversationUuid) -> Response:
    """Answer what was said, do what waits for approval, or go on. 409: it is running already."""
    await begin_run(backend, caller, await look(backend, conversation))
    return done()


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/pause",
    tag="openhands",
    summary="Pause",
    answers={200: ("Paused, or over, or waiting for somebody already.", OpenHandsSuccess)},
    problems=("conversation_not_found", "conversation_revised", "store_nearly_full", "not_durable"),
)
async def pause_conversation(backend: Backend, caller: Caller, conversation: ConversationUuid) -> Response:
    """Stop until it is run again. A call of the model is closed at once; what a tool does is finished."""
    await _pause(backend, caller, conversation)
    return await _once_told(backend, conversation)


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/interrupt",
    tag="openhands",
    summary="Interrupt",
    answers={200: ("Paused, or over, or waiting for somebody already.", OpenHandsSuccess)},
    problems=("conversation_not_found", "conversation_revised", "store_nearly_full", "not_durable"),
)
async def interrupt_conversation(backend: Backend, caller: Caller, conversation: ConversationUuid) -> Response:
    """The same as a pause: that closes a call of the model at once, too."""
    await _pause(backend, caller, conversation)
    return await _once_told(backend, conversation)


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/events/respond_to_confirmation",
    tag="openhands",
    summary="Decide on what waits for confirmation",
    answers={200: ("Decided, or nothing waited.", OpenHandsSuccess)},
    problems=_RUN_PROBLEMS,
)
async def respond_to_confirmation(
    backend: Backend, caller: Caller, conversation: ConversationUuid, wanted: Confirmation
) -> Response:
    """Accepting lets it run. After a rejection nothing is begun until it is run."""
    seen = await look(backend, conversation)
    if seen.status is ExecutionStatus.WAITING:
        await (begin_run(backend, caller, seen) if wanted.accept else reject(backend, caller, seen, wanted.reason))
    return await _once_told(backend, conversation)


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/confirmation_policy",
    tag="openhands",
    summary="Say which calls wait for confirmation",
    answers={200: ("It holds from the next run on.", OpenHandsSuccess)},
    problems=("conversation_not_found", "conversation_revised", "store_nearly_full", "not_durable"),
)
async def confirmation_policy(backend: Backend, conversation: ConversationUuid, wanted: NewPolicy) -> Response:
    """NeverConfirm, AlwaysConfirm or ConfirmRisky. Nobody is asked about finish and think."""
    await keep(backend, conversation, _with_approvals, policy=wanted.policy)
    return await _once_told(backend, conversation)


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/security_analyzer",
    tag="openhands",
    summary="Say what judges how risky a call is",
    answers={200: ("It holds from the next run on.", OpenHandsSuccess)},
    problems=("conversation_not_found", "conversation_revised", "store_nearly_full", "not_durable"),
)
async def security_analyzer(backend: Backend, conversation: ConversationUuid, wanted: NewAnalyzer) -> Response:
    """Whichever it is: here tools say themselves whether they are risky. Without one it is not known."""
    await keep(backend, conversation, _with_approvals, analyzer=wanted.security_analyzer)
    return await _once_told(backend, conversation)


async def _once_told(backend: Backend, conversation: UUID) -> Response:
    """The answer to what changes the state: programs look at it next, and have it from their sockets. Not to run: what
    a client is told before the answer to that, it does not take for the end of the run."""
    await operations.once_told(backend, operations.conversation_of(backend, conversation))
    return done()


async def _pause(backend: Backend, caller: Caller, conversation: UUID) -> None:
    """Pause what runs; where nothing does, programs that wait for the status `paused` are told it all the same."""
    seen = await look(backend, conversation)
    if seen.status is ExecutionStatus.IDLE:
        await keep(backend, conversation, with_its_agent, paused_after=seen.newest_run or "")
    else:
        await pause(backend, caller, seen)


def _with_approvals(seen: Seen, kept: Kept) -> ConversationPatch:
    agent, revision = seen.conversation.agent, seen.conversation.revision
    if agent is None:
        return ConversationPatch(revision=revision)
    asked = approvals(kept.policy, agent.tools, analyzed=kept.analyzer is not None)
    return ConversationPatch(agent=agent.model_copy(update={"approvals": asked}), revision=revision)
