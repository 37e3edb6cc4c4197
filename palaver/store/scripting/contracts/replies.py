"""Replies that several scripts have."""

from __future__ import annotations

from enum import StrEnum

from palaver.late import dataclass
from palaver.steps.leases import Delivery
from palaver.vocabulary.lifecycle import RunStatus


@dataclass(frozen=True, slots=True)
class Moved:
    """The script has changed the run: its status now, and the deliveries to publish, of any runs."""

    status: RunStatus
    deliveries: tuple[Delivery, ...]
    next_run: str | None
    """The conversation's next run."""
    due: tuple[str, ...] = ()
    """Entries of the due index, of children and parents of the run, that the caller acts on now."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The lease is not the newest any more. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Gone:
    """There is nothing to do, or nothing any more."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no such run or conversation."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has ended, or ends."""

    status: RunStatus


@dataclass(frozen=True, slots=True)
class Active:
    """The run has not ended."""

    status: RunStatus


@dataclass(frozen=True, slots=True)
class Busy:
    """The conversation has runs that have not ended, or is being deleted."""


@dataclass(frozen=True, slots=True)
class More:
    """A part is done; call it again."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The idempotency key was used with another request."""


class RefusalCode(StrEnum):
    """The code of a refusal: why a run, or an item for one, is not taken. Callers get the same code, in a
    `StateConflict`."""

    PENDING_ACTION = "pending_action"
    CONVERSATION_MOVED_ON = "conversation_moved_on"
    CONVERSATION_BUSY = "conversation_busy"
    CONVERSATION_CHANGED = "conversation_changed"
    CONVERSATION_FULL = "conversation_full"
    QUEUE_FULL = "queue_full"
    STEERING_FULL = "steering_full"
    SECRETS_FULL = "secrets_full"
    NO_AGENT = "no_agent"
    TENANT_ERASED = "tenant_erased"
    NOTHING_TO_RETRY = "nothing_to_retry"
    NOTHING_TO_ANSWER = "nothing_to_answer"
    UNKNOWN_ACTION = "unknown_action"
    ACTION_ALREADY_RESOLVED = "action_already_resolved"
    ACTION_EXPIRED = "action_expired"
    WRONG_ACTION = "wrong_action"
    DIGEST_MISMATCH = "digest_mismatch"
    SECOND_PERSON_REQUIRED = "second_person_required"
    NOT_TO_BE_EDITED = "not_to_be_edited"
    NO_PENDING_ACTION = "no_pending_action"
    NOT_PAUSED = "not_paused"
