"""Requests of clients about runs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from palaver.late import dataclass
from palaver.schemas.models import CancelMode, OnConflict
from palaver.steps.leases import Delivery
from palaver.store.redis.keys import Key, RunKeys
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Ended, Mismatch, Moved, RefusalCode, Unknown
from palaver.store.scripting.contracts.secrets import NewSecret
from palaver.store.scripting.contracts.wire import Json
from palaver.vocabulary.lifecycle import RunStatus

SubmitKind = Literal["new", "named", "known", "retry", "fork", "condense"]
"""To a new conversation; to a known one; to that, but only right behind the run that it goes on with; to a copy. To
a known one that it condenses: it does nothing else."""


@dataclass(frozen=True, slots=True)
class Created:
    """The run is accepted."""

    run_id: str
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class Steered:
    """There is no new run: the input went into ``run_id``, which was active."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """An earlier request with the same key did it."""

    run_id: str
    steered: bool


@dataclass(frozen=True, slots=True)
class Past:
    """A time of the run has passed."""

    field: Literal["start_by", "deadline"]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request is refused."""

    code: RefusalCode
    other: str | None
    """The run that is the reason."""


@dataclass(frozen=True, slots=True)
class Full:
    """The limit of unfinished runs is reached."""


@dataclass(frozen=True, slots=True)
class TenantFull:
    """As many runs of the tenant have not begun as there may be."""


@dataclass(frozen=True, slots=True)
class Barred:
    """The call of another run may not begin this one, its child."""

    why: Literal["stale", "stopping", "gone", "full"]
    """Its lease is lost; its run is being cancelled or paused; it has begun one that was deleted since; its run has as
    many children as it may have."""


class Submit(Script[Created | Steered | Replayed | Mismatch | Past | Rejected | Full | TenantFull | Barred | Unknown]):
    """Take a run on: its record, its place in the conversation and its idempotency key in one step."""

    grows = True

    run: RunKeys
    idempotency: Key
    """The record of the idempotency key."""
    forked: Key | None
    """The conversation that a fork is made of."""
    run_id: str
    conversation_id: str
    kind: SubmitKind
    fingerprint: str | None
    """The fingerprint of the request; None if it has no idempotency key."""
    on_conflict: OnConflict
    agent: Json | None
    """None for the conversation's."""
    names: str | None
    """The names of that agent (- for none) and of its models."""
    max_steps: int | None
    """The limit of steps of that agent."""
    start_after: int | None
    start_by: int | None
    deadline: int | None
    """The end of the run at the latest, in ms as the two above. Without one it is PALAVER_RUN_DEADLINE after the
    start."""
    metadata: Json
    tags: Json
    budget: Json | None
    priority: int
    submitted_by: str | None
    """The name of the key that asks."""
    agent_by: Json | None
    """The names of those who wrote the agent, a list, '' for one without a name; None for those that are known of what
    it goes on with."""
    voices: Json | None
    """The names of others who made the run what it is, a list as above."""
    seen_agent: str | None
    """The conversation's agent that the request was judged by, as the text of `StandingAgent`: with another one it is
    refused. None if it was not looked at."""
    retried_from: str | None
    """The run that this one goes on with. With ``retry`` it says what that one was to say and did not."""
    parent: Json | None
    """The call that begins this run: run_id, step and fence of its lease, and the name of the agent."""
    lacks: str | None
    """The code of what no worker has that its first step needs; None if one may be there."""
    copy: str | None
    """The name of the copy of the log that a fork begins with."""
    copied_through: int | None
    """Position up to which that goes."""
    most_due: int
    """Entries that the due index may have for a run to be new."""
    withdrawals: bytes
    """The withdrawals of the forked conversation before it was copied, as of `LogPage`."""
    withdrawn: Json | None
    """The withdrawn parts of the copy."""
    trace: str | None
    """The trace that it belongs to, as `palaver.telemetry.traces.Trace` is stored."""
    endpoint: str | None
    """The endpoint, as in `ChangeConversation`."""
    title: str | None
    """The title of the conversation, if it was given none and this run has its first message."""
    folded: str | None
    """The same in small letters."""
    input_preview: str | None
    """None of a retry: that of the run that it goes on with."""
    messages: tuple[Json, ...]
    secrets: tuple[NewSecret, ...]
    """Secrets that the conversation has from here on."""


class Cancel(Script[Moved | Ended | Unknown]):
    """Acknowledge a cancel. From here on the run ends as cancelled, whatever a worker brings later."""

    when_full = True

    run: RunKeys
    mode: CancelMode
    by: Json
    """The name of the key that asks: a string or null."""
    reason: Json
    """A string or null."""
    acked_ms: int
    """Milliseconds from the arrival of the request at the API until now."""


ItemType = Literal["approve", "deny", "edit", "output", "answer", "message", "pause", "resume", "stop"]


class NewItem(NamedTuple):
    """Something that is put into a run."""

    type: ItemType
    action: str | None = None
    """The action that it decides on, or answers."""
    digest: str | None = None
    arguments: str | None = None
    """JSON (edit)."""
    reason: str | None = None
    """As the user gave it (deny, pause, stop)."""
    text: str | None = None
    """The text for the model (deny, output, message; that of a message is JSON), or JSON for the tool (answer)."""
    is_error: bool = False
    now: bool = False
    """Abort a model call that is under way (pause)."""
    ends: bool = False
    """End the run with this result, without another call of the model (output)."""


Resolution = Literal["approve", "deny", "edit", "output", "answer", "expired", "cancelled"]
"""The way an action was resolved: by an item of that type, by its expiry, or with its run."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The items are in, now or, with ``replayed``, by an earlier request with the same key."""

    status: RunStatus
    deliveries: tuple[Delivery, ...]
    next_run: str | None
    replayed: bool
    due: tuple[str, ...]
    """As in `Moved`."""


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """None of the items is in, because of this one."""

    number: int
    """From 1."""
    code: RefusalCode


class Act(Script[Accepted | Mismatch | Unknown | Ended | RefusedItem]):
    """Put decisions, outputs and the user's words into a run, pause it or let it go on: all items, or none."""

    grows = True

    run: RunKeys
    idempotency: Key
    fingerprint: str | None
    """None if the idempotency key is not the client's."""
    request: str
    """Names this very request."""
    by: Json
    """The name of the key that asks: a string or null."""
    items: tuple[NewItem, ...]
