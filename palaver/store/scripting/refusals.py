"""Refusals of runs, and of items for them: a sentence for each code of the scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from palaver.errors import StateConflict
from palaver.store.scripting.contracts.replies import RefusalCode as Code
from palaver.vocabulary.limits import count_exceeded


class _Refusal(NamedTuple):
    """The message of a refusal for callers, and the limit that it names."""

    message: str
    limit: str | None = None
    """The limit behind it, by which it is counted."""


_REFUSALS: Final[Mapping[Code, _Refusal]] = {
    Code.PENDING_ACTION: _Refusal("the conversation waits for an answer to an action"),
    Code.CONVERSATION_MOVED_ON: _Refusal("another run came after this one"),
    Code.CONVERSATION_BUSY: _Refusal("the conversation is busy with another run"),
    Code.CONVERSATION_CHANGED: _Refusal(
        "it was changed meanwhile: it has another agent, or something of it was deleted"
    ),
    Code.CONVERSATION_FULL: _Refusal("the conversation has as many entries, or as much in them, as it may", "entries"),
    Code.QUEUE_FULL: _Refusal("as many runs of the conversation are unfinished as there may be", "queued_runs"),
    Code.STEERING_FULL: _Refusal("as much waits for the run's next model call as may", "steering"),
    Code.SECRETS_FULL: _Refusal("the conversation has as many secrets, or as much in them, as it may", "secrets"),
    Code.NO_AGENT: _Refusal("the conversation has no agent yet; give one with this run"),
    Code.TENANT_ERASED: _Refusal("the tenant is being erased, or was: nothing is begun for it any more"),
    Code.NOTHING_TO_RETRY: _Refusal("the model has answered; send a new message instead"),
    Code.NOTHING_TO_ANSWER: _Refusal("the model has answered everything; say something first"),
    Code.UNKNOWN_ACTION: _Refusal("the run has no such pending action"),
    Code.ACTION_ALREADY_RESOLVED: _Refusal("this was decided or answered before"),
    Code.ACTION_EXPIRED: _Refusal("there was no decision or answer in time, and the model was told so"),
    Code.WRONG_ACTION: _Refusal("an approval takes a decision, a client tool's call an output, a question an answer"),
    Code.DIGEST_MISMATCH: _Refusal("the call is not the one that was looked at"),
    Code.SECOND_PERSON_REQUIRED: _Refusal(
        "this call needs the approval of a second person: a key with another name than those of all who had a "
        "part in the run: who made it, whose words its model was told, and who wrote its agent"
    ),
    Code.NOT_TO_BE_EDITED: _Refusal("a call that needs a second person is approved as it is, or denied"),
    Code.NO_PENDING_ACTION: _Refusal("no call of the run awaits an approval"),
    Code.NOT_PAUSED: _Refusal("the run is not paused"),
}


def refusal(code: Code, run_id: str | None, where: str = "") -> StateConflict:
    """The conflict, with the run that is in the way; it is counted. ``where`` precedes its message."""
    row = _REFUSALS[code]
    if row.limit is not None:
        count_exceeded(row.limit)
    return StateConflict(code, run_id, where + row.message)
