"""Runs, of which OpenHands has no word: a conversation runs, waits, is paused. Here it is mapped to its newest run."""

from __future__ import annotations

from contextlib import suppress

from palaver.errors import StateConflict, UnknownRun
from palaver.schemas.actions import ApprovalDecision, Item, Pause, Resume, Stop
from palaver.schemas.conversation import ConversationPatch
from palaver.schemas.models import Retry, Run, Submission
from palaver.vocabulary.lifecycle import RunStatus

from .. import operations
from ..operations import Backend, Caller
from .looking import Seen
from .statuses import ExecutionStatus

_APPROVED = ApprovalDecision(type="approval", action_id="all", decision="approve")


async def begin_run(backend: Backend, caller: Caller, seen: Seen) -> None:
    """Let a conversation go on: to answer what was said, to do what waits for approval, or from where it was stopped.
    One that has finished stays so if nothing was said since.

    Raises:
        StateConflict: ``conversation_busy``, it is running; or there is nothing to answer.
    """
    run = seen.active
    if run is not None and run.status is RunStatus.REQUIRES_ACTION and not run.pausing:
        await operations.act(backend, run.id, [_APPROVED], caller)
    elif run is not None and (run.pausing or run.status is RunStatus.PAUSED):
        await operations.act(backend, run.id, [Resume(type="resume")], caller)
    elif seen.status is ExecutionStatus.RUNNING:
        raise StateConflict("conversation_busy", run.id if run else None, "the conversation is running")
    elif seen.status is ExecutionStatus.FINISHED:
        # Nothing changes by that but the revision: sockets tell the state anew, which ends the wait of the client.
        await operations.change_conversation(backend, seen.id, ConversationPatch())
    elif seen.run is not None and seen.run.status.allows("retry") and not seen.unanswered:
        await operations.retry(backend, seen.run.id, Retry(), caller)
    else:
        submission = Submission(conversation_id=seen.id, input=(), on_conflict="reject")
        await operations.begin(backend, submission, caller)


async def begin_unless_running(backend: Backend, caller: Caller, seen: Seen) -> None:
    """The same, for who does not mind that it goes on already."""
    try:
        await begin_run(backend, caller, seen)
    except StateConflict as conflict:
        if conflict.code != "conversation_busy":
            raise


async def pause(backend: Backend, caller: Caller, seen: Seen) -> None:
    """Stop at once, to go on later. What a tool does is finished; a call of the model is closed, and made again. What
    waits for approval has stopped."""
    if seen.status is not ExecutionStatus.WAITING:
        await _act(backend, caller, seen, [Pause(type="pause", now=True)])


async def reject(backend: Backend, caller: Caller, seen: Seen, reason: str) -> None:
    """Reject what waits for approval. The model hears of it when the conversation is run."""
    denied = ApprovalDecision(type="approval", action_id="all", decision="deny", reason=reason or None)
    await _act(backend, caller, seen, [denied, Stop(type="stop")])


async def _act(backend: Backend, caller: Caller, seen: Seen, items: list[Item]) -> None:
    run: Run | None = seen.active
    if run is None or run.status is RunStatus.PAUSED or run.pausing:
        return
    # It may have ended meanwhile: then it has stopped, too.
    with suppress(UnknownRun, StateConflict):
        await operations.act(backend, run.id, items, caller)
