"""Operations of workers and sweepers on steps."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, NamedTuple

from palaver.errors import ErrorClass
from palaver.events import EventKind
from palaver.late import dataclass
from palaver.steps.leases import Delivery, Lease, OfferedPlace, Stray
from palaver.store.redis.keys import Key, RunKeys
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Gone, Moved, Stale
from palaver.store.scripting.contracts.wire import Batch, Json, Unsent, UnsentKind
from palaver.vocabulary.durations import Seconds
from palaver.vocabulary.lifecycle import StopReason, WaitReason
from palaver.vocabulary.step_kinds import MODEL, StepKind


class RunDue(StrEnum):
    """The entries of a run in the due index, besides its steps."""

    START = "start"
    """Its start time, or its turn in the conversation."""
    END = "end"
    """A time limit is reached, or 80 % of it are used."""
    PARENT = "parent"
    """Its parent has ended, pauses, or goes on: it does the same."""


class Used(NamedTuple):
    """The usage of a step."""

    input_tokens: int
    cached_tokens: int
    """Tokens of the input that were cached."""
    cache_write_tokens: int
    """Tokens of the input that are cached from now on."""
    output_tokens: int
    reasoning_tokens: int
    """Tokens of the output that the model thought with."""
    model_calls: int
    cost: int | None
    """In nano-dollars; None if it is not known."""


class Claim(Script[Lease | Stray]):
    """Lease a step to a worker."""

    echoes = ("run_id", "conversation_id", "kind")

    run_id: Unsent
    conversation_id: Unsent
    kind: UnsentKind
    run: RunKeys
    step: str
    worker: str
    lease: Seconds
    known: int | None
    """The log position that the worker knows (model steps); None if it wants no messages."""
    known_at: int
    """The time at which the entry at that position was written, ms."""
    nonce: str
    """Names this very claim: a repeat gets the same lease."""
    queues: tuple[str, ...]
    """The queues that the worker takes from: the step must be of one of them."""


class NewEntry(NamedTuple):
    """An entry that a verdict brings."""

    kind: EventKind
    call_id: str | None
    """The call that it answers."""
    data: Json
    opaque: str | None = None
    """The fields that a provider wants back with it, behind their origin (`palaver.schemas.opaque`)."""
    deltas: int = 0
    """As many numbers of the run's events are left free before it, for deltas that readers make of its text
    (`palaver.store.reading.events`)."""


class NewCall(NamedTuple):
    """A call that the model asked for."""

    id: str
    name: str
    queue: str | None
    """The queue of its step; None if the call is already answered and needs no step."""
    idempotent: bool
    call: Json | None
    action: Json | None
    """The action that it waits for; None if it may begin."""
    limit: Seconds | None
    """The longest that an attempt may take; None if it is not known."""
    shown: str | None
    """The digest of the tool as the model was shown it; None if it is not known."""
    at_hand: bool
    """The worker that settles would begin it, if it offers a place."""


class BegunCall(NamedTuple):
    """A tool step that the worker has leased."""

    step: str
    fence: int


@dataclass(frozen=True, slots=True)
class CallsBegun:
    """The verdict is applied, and the worker has leases of tool steps of the turn."""

    deliveries: tuple[Delivery, ...]
    """To publish, of other steps."""
    due: tuple[str, ...]
    """As `Moved` has it."""
    time_left: Seconds
    """Until the run's time is up."""
    secrets_at: str
    """Another value after each change of the conversation's secrets; empty if it has none."""
    calls: tuple[BegunCall, ...]


class SpanOutcome(StrEnum):
    """The end of an attempt in the trace of its run, if that was no `VerdictKind`."""

    HANDED_BACK = "handed_back"
    LOST = "lost"
    """Its worker is gone."""
    RUN_ENDED = "run_ended"
    """Its run ended before it did."""


class VerdictKind(StrEnum):
    """The kind of verdict."""

    CONTINUE = "continue"
    FINISH = "finish"
    RETRY = "retry"
    GIVE_UP = "give_up"


class Settle(Script[Moved | Lease | CallsBegun | Stale]):
    """Apply a verdict under a live lease. Without the newest fence nothing is written. A worker that offers its place
    may get the lease of the run's next model step, or those of the turn's tool steps: then no step of their queue is
    waiting for a worker."""

    when_full = True
    echoes = ("run_id", "conversation_id", "kind")
    kind: ClassVar[StepKind] = MODEL
    """That of the run's next step, if the answer is its lease."""

    run_id: Unsent
    conversation_id: Unsent
    run: RunKeys
    step: str
    fence: int
    verdict: VerdictKind
    stop: StopReason | None
    """Why the run ends, if it does."""
    fallback: bool
    """With the agent's next model (retry)."""
    error: Json | None
    failed: ErrorClass | None
    """The class of the failure, if the step failed; also of one that does not end the run."""
    attempts: int | None
    """The number of attempts that the retry policy allows after such a failure (retry)."""
    rule: str | None
    """The rule that decided, where it is not the one of the failure's class (retry)."""
    delay: Seconds
    streamed: bool
    """Watchers saw text that is withdrawn."""
    used: Used
    ends: bool
    """A tool has ended the run: it ends once the other calls of the turn have their results."""
    output: str | None
    """The text that the run ends with."""
    tool_calls: int
    """Done here."""
    trace_note: Json | None
    """The worker's note on the attempt, for the trace of the run."""
    in_place: tuple[OfferedPlace, ...]
    """One, or none."""
    entries: tuple[NewEntry, ...]
    calls: tuple[NewCall, ...]


class HandBack(Script[Moved | Stale]):
    """Give a lease up without a verdict (drain, pause). Another worker continues, at once or when the run is resumed,
    and this does not count as a loss."""

    when_full = True

    run: RunKeys
    step: str
    fence: int
    begun: bool
    """The work may have begun."""
    used: Used
    trace_note: Json | None
    """As in `Settle`."""


class Postpone(Script[Moved | Stale]):
    """Give a lease up before the work began: a limit is reached, or the worker lacks what it needs; or in an outage.
    This does not count as an attempt, and the wait does not count as the step's time."""

    run: RunKeys
    step: str
    fence: int
    delay: Seconds
    reason: WaitReason
    code: str
    error: Json | None
    """The last failure of the provider, or of a tool's service, in an outage."""
    begun: bool
    """A tool's call was made."""
    kept: str | None
    """The part of the call that the next attempt goes on from."""
    used: Used


class Ask(Script[Moved | Stale]):
    """Give a lease up in the middle of a tool call, until a person has answered a question. The step goes on then, and
    the wait does not count as its time."""

    run: RunKeys
    step: str
    fence: int
    action: Json
    kept: str
    """The part of the call that the next attempt goes on from."""
    used: Used


class Promote(Script[Moved | Gone]):
    """Deliver a postponed step before its time, because a place is free now."""

    run: RunKeys
    step: str


@dataclass(frozen=True, slots=True)
class Filled:
    """The deliveries to publish, of any runs."""

    deliveries: tuple[Delivery, ...]


class Fill(Script[Filled]):
    """Deliver what a shard's queues have room for, in the order of its tenants' turns. What makes room does it as well;
    this is for caps that were changed."""

    when_full = True

    due: Key
    most: int
    """Tenants at their cap that are looked at."""
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftToNewer:
    """Newer code has worked on the conversation, and will handle the entry."""


class Sweep(Script[Moved | Gone | LeftToNewer]):
    """Act on something that is due. Any number of sweepers may do so at any time: the script checks again before it
    acts."""

    when_full = True

    run: RunKeys
    what: str
    """A step, ``start`` or ``end``."""
    ready: str | None
    """The queue among whose unclaimed deliveries it was found; None if it is in the due index."""
    dead_worker: str | None
    """A dead worker, whose lease on the step ends now. Without it only an expired lease ends."""
    unrenewed_before: int | None
    """Milliseconds. If it is there, a lease of the dead worker that lasts until then or longer is left: it was claimed
    or renewed after the worker was taken for dead."""
    unclaimed: Seconds
    """After so long an unclaimed delivery is sent again."""
    judged: Json | None
    """Its judgement by all that were lost with it in any shard; None if the script is to compare those of its own."""
    acquitted: bool
    """True if a worker ended without it: a trial of it is over."""


@dataclass(frozen=True, slots=True)
class Judged:
    """For each step its row, age and judgement."""

    steps: Json


class Judge(Script[Judged]):
    """Judge steps of many shards that were lost with one worker. It reads and writes nothing."""

    when_full = True

    due: Key
    """That of a shard which has one of them: its server judges."""
    losses: Json
    """A list: of each step its member and score in the due index, and what is known of its losses."""
    unrenewed_before: int | None
    """As `Sweep` has it."""


class Attend(Script[Moved | Gone]):
    """Note on a ready step whether a worker takes from its queue, and say it on the run. It fails once that has been so
    for too long."""

    when_full = True

    run: RunKeys
    step: str
    queue: str
    """The queue that this is about: the step may have left it."""
    attended: bool


class HeldLease(NamedTuple):
    """A lease to prolong."""

    run: Key
    steps: Key
    run_id: str
    step: str
    fence: int
    received: int
    """Bytes of an answer that have come so far."""
    characters: int
    """Characters of the text in it."""
    quiet: Seconds
    """Since the last of it came."""
    left: Seconds | None
    """Until the attempt is given up; None if it does not say how far it is."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """For each lease its `palaver.steps.leases.Renewal`."""

    answers: tuple[int, ...]


class Renew(Script[Renewed]):
    """Prolong leases of one shard."""

    when_full = True

    due: Key
    lease: Seconds
    leases: Batch[HeldLease]


class NewDelta(NamedTuple):
    """A delta of a model's or a tool's output, under the lease of its step."""

    run: Key
    steps: Key
    feed: Key
    step: str
    fence: int
    kind: EventKind
    payload: Json


@dataclass(frozen=True, slots=True)
class DeltasWritten:
    """The number of deltas that were written: none under a lost lease, and none twice when the call is repeated."""

    written: int


class WriteDeltas(Script[DeltasWritten]):
    """Show deltas of many runs to watchers, in one call. The log does not keep them."""

    nonce: str
    """Names this very call."""
    deltas: Batch[NewDelta]
