"""Use cases of the verbs: send a message, run, pause, confirm.

OpenHands has no word for runs: a conversation runs, waits, is paused, and here that is its newest run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import Field

from api.http.headers import IdempotencyKey
from api.kit.lenient import LenientModel
from palaver import operations
from palaver.errors import FieldError, Refused, StateConflict, UnknownRun
from palaver.operations import Backend, Caller, Until
from palaver.schemas.actions import ApprovalDecision, Item, Pause, Resume, Stop
from palaver.schemas.conversation import ConversationPatch
from palaver.schemas.fields import AtMost, SecretName
from palaver.schemas.models import Retry, Submission
from palaver.vocabulary.lifecycle import RunStatus

from .agents import Policy, approvals
from .content import OpenHandsContent, OpenHandsSecret, user_message
from .dialect import ConversationUuid, OpenHandsSettings
from .events import INTERRUPT
from .history import find_position
from .snapshot import Snapshot, load_snapshot, save_state, with_its_agent
from .state import ClientState
from .tables import ExecutionStatus

_APPROVED: Final = ApprovalDecision(type="approval", action_id="all", decision="approve")
_SUPERSEDED: Final = ApprovalDecision(
    type="approval", action_id="all", decision="deny", reason="Superseded by a new user message"
)


class SendMessage(LenientModel):
    """A message of the user."""

    role: Literal["user"] = "user"
    content: OpenHandsContent
    run: bool = False


class Confirmation(LenientModel):
    """A decision on all calls that wait."""

    accept: bool
    reason: str = "User rejected the action"


class NewPolicy(LenientModel):
    """A policy that decides which calls wait, from the next run on."""

    policy: Policy


class NewAnalyzer(LenientModel):
    """An analyzer of the risk of calls."""

    security_analyzer: dict[str, Any] | None = None


class NewSecrets(LenientModel):
    """Secrets by name."""

    secrets: Annotated[dict[SecretName, OpenHandsSecret], AtMost("secrets")]


class Navigation(LenientModel):
    """An event to go back to."""

    event_id: str | None = Field(default=None, max_length=100)


async def send_message(
    backend: Backend, caller: Caller, conversation: ConversationUuid, key: IdempotencyKey, body: SendMessage
) -> None:
    """The user's words. A run that is going on is told them by its next model call. With `run` they are said also where
    nothing can be run now: then ask to run, or send them again with the same `Idempotency-Key`. Without one they are
    said anew, as nothing tells words that are sent again from those that are said twice."""
    id = operations.conversation_of(backend, conversation)
    if body.run and (await operations.read_conversation(backend, id)).agent is None:
        # Said before anything is added, which a client would add again.
        raise Refused.of_faults([FieldError("/run", "no_agent", "the conversation has no agent that could run")])
    appended = await operations.append(backend, id, [user_message(body.content)], caller, key=key)
    if body.run:
        snapshot = await load_snapshot(backend, conversation)
        # Sent again, they do not approve or resume what has come of them meanwhile.
        if not appended.replayed or (snapshot.active is None and snapshot.unanswered):
            await begin_unless_running(backend, caller, snapshot)


async def run_conversation(backend: Backend, caller: Caller, conversation: ConversationUuid) -> None:
    """Answer what was said, do what waits for approval, or go on. Words never approve: what waits when something was
    said is rejected. 409: it is running already."""
    await begin_run(backend, caller, await load_snapshot(backend, conversation))


async def pause_conversation(backend: Backend, caller: Caller, conversation: ConversationUuid) -> None:
    """Stop until it is run again. A call of the model is closed at once; what a tool does is finished."""
    await _pause(backend, caller, conversation, None)


async def interrupt_conversation(backend: Backend, caller: Caller, conversation: ConversationUuid) -> None:
    """The same as a pause, which closes a call of the model at once, too: only the event has another name."""
    await _pause(backend, caller, conversation, INTERRUPT)


async def respond_to_confirmation(
    backend: Backend, caller: Caller, conversation: ConversationUuid, body: Confirmation
) -> None:
    """Accepting lets it run. After a rejection nothing is begun until it is run."""
    snapshot = await load_snapshot(backend, conversation)
    if snapshot.active is not None and snapshot.status is ExecutionStatus.WAITING:
        if body.accept:
            await operations.act(backend, snapshot.active.id, [_APPROVED], caller)
        else:
            await _reject(backend, caller, snapshot, body.reason)


async def confirmation_policy(
    backend: Backend, caller: Caller, conversation: ConversationUuid, body: NewPolicy
) -> None:
    """NeverConfirm, AlwaysConfirm or ConfirmRisky. Finish and think need no approval."""
    await save_state(backend, caller, conversation, _with_approvals, policy=body.policy)


async def security_analyzer(
    backend: Backend, caller: Caller, conversation: ConversationUuid, body: NewAnalyzer
) -> None:
    """Any analyzer: here tools declare themselves whether they are risky. Without an analyzer the risk is not known."""
    await save_state(backend, caller, conversation, _with_analyzer, analyzer=body.security_analyzer)


async def set_secrets(backend: Backend, caller: Caller, conversation: ConversationUuid, body: NewSecrets) -> None:
    """They are stored encrypted, and masked in the results of tools. Their values are never shown."""
    id = operations.conversation_of(backend, conversation)
    await operations.set_secrets(backend, id, body.secrets, caller, pointer="/secrets")


async def navigate(backend: Backend, caller: Caller, conversation: ConversationUuid, body: Navigation) -> None:
    """Events stay, and what is said next goes on from there. Without an event: from the beginning."""
    snapshot = await load_snapshot(backend, conversation)
    position = await find_position(backend, snapshot, body.event_id, "/event_id")
    await operations.withdraw(backend, snapshot.id, position or 0, caller)


async def condense(backend: Backend, caller: Caller, conversation: ConversationUuid) -> None:
    """409: the agent has no condenser, too little was said, or the conversation is running. Events stay."""
    snapshot = await load_snapshot(backend, conversation)
    if snapshot.conversation.agent is not None and not snapshot.conversation.agent.condense:
        raise StateConflict("nothing_to_condense", None, "the agent has no condenser")
    operations.admit_watcher(backend)
    taken = await operations.condense(backend, snapshot.id, caller)
    run = await operations.await_run(backend, taken.run, Until.TERMINAL, backend.setting(OpenHandsSettings).patience)
    if run.status.terminal and run.status is not RunStatus.COMPLETED:
        raise StateConflict("no_answer", run.id, run.error["message"] if run.error else "the run was stopped")


async def begin_run(backend: Backend, caller: Caller, snapshot: Snapshot) -> None:
    """Let a conversation go on: to answer what was said, to do what waits for approval, or from where it was stopped.
    One that has finished stays so if nothing was said since. Where something was said while calls wait, to run is no
    approval of these: they are rejected, and the model hears the words.

    Raises:
        StateConflict: ``conversation_busy``, it is running; or there is nothing to answer.
    """
    run = snapshot.active
    if run is not None and run.status is RunStatus.REQUIRES_ACTION and not run.pausing:
        said = await operations.has_unheard_words(backend, run.id)
        await operations.act(backend, run.id, [_SUPERSEDED if said else _APPROVED], caller)
    elif run is not None and (run.pausing or run.status is RunStatus.PAUSED):
        await operations.act(backend, run.id, [Resume(type="resume")], caller)
    elif snapshot.status is ExecutionStatus.RUNNING:
        raise StateConflict("conversation_busy", run.id if run else None, "the conversation is running")
    elif snapshot.status is ExecutionStatus.FINISHED:
        # Nothing changes by that but the revision: sockets tell the state anew, which ends the wait of the client.
        await operations.change_conversation(backend, snapshot.id, ConversationPatch(), caller)
    elif snapshot.run is not None and snapshot.run.status.allows("retry") and not snapshot.unanswered:
        await operations.retry(backend, snapshot.run.id, Retry(), caller)
    else:
        submission = Submission(conversation_id=snapshot.id, input=(), on_conflict="reject")
        await operations.begin(backend, submission, caller)


async def begin_unless_running(backend: Backend, caller: Caller, snapshot: Snapshot) -> None:
    """Let a conversation go on, and do nothing if it is running already."""
    try:
        await begin_run(backend, caller, snapshot)
    except StateConflict as conflict:
        if conflict.code != "conversation_busy":
            raise


async def _pause(backend: Backend, caller: Caller, conversation: UUID, reason: str | None) -> None:
    """Pause a run at once: a tool finishes its call, a call of the model is closed, and made again later. A run that
    waits for approval has stopped already. Where nothing runs, programs that wait for the status `paused` get it all
    the same."""
    snapshot = await load_snapshot(backend, conversation)
    if snapshot.status is ExecutionStatus.IDLE:
        await save_state(
            backend, caller, conversation, with_its_agent, paused_after=snapshot.conversation.newest_run or ""
        )
    elif snapshot.status is not ExecutionStatus.WAITING:
        await _act(backend, caller, snapshot, [Pause(type="pause", now=True, reason=reason)])


async def _reject(backend: Backend, caller: Caller, snapshot: Snapshot, reason: str) -> None:
    """Reject the calls that wait for approval. The model hears of it when the conversation is run."""
    denied = ApprovalDecision(type="approval", action_id="all", decision="deny", reason=reason or None)
    await _act(backend, caller, snapshot, [denied, Stop(type="stop")])


async def _act(backend: Backend, caller: Caller, snapshot: Snapshot, items: list[Item]) -> None:
    run = snapshot.active
    if run is None or run.status is RunStatus.PAUSED or run.pausing:
        return
    # It may have ended meanwhile: then it has stopped, too.
    with suppress(UnknownRun, StateConflict):
        await operations.act(backend, run.id, items, caller)


def _with_approvals(snapshot: Snapshot, state: ClientState) -> ConversationPatch:
    agent, revision = snapshot.conversation.agent, snapshot.conversation.revision
    if agent is None:
        return ConversationPatch(revision=revision)
    required = approvals(state.policy, agent.tools, analyzed=state.analyzer is not None)
    # With other approvals it is not the agent of the server any more, if it was one.
    changed = operations.as_it_was(agent).model_copy(update={"approvals": required, "version": None})
    return ConversationPatch(agent=changed, revision=revision)


def _with_analyzer(snapshot: Snapshot, state: ClientState) -> ConversationPatch:
    """Return the patch for another analyzer: the confirmation policy is the one that was, and not the request's."""
    patch = _with_approvals(snapshot, state)
    return patch if patch.spec is None else patch.model_copy(update={"agent": operations.as_it_was(patch.spec)})
