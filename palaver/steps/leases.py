"""Deliveries and leases: the values that move between the store, the broker and the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum, IntEnum
from typing import Annotated, NamedTuple

import orjson

from palaver.late import dataclass
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.telemetry.traces import Trace
from palaver.vocabulary.durations import Seconds
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.step_kinds import MODEL, TOOL, StepKind, kind_of, queue_in_broker


class Delivery(NamedTuple):
    """A Celery message that asks a worker to try a step. Only a hint: it may be lost, late or doubled."""

    queue: str
    """The broker's name of the queue of its step. With the suffix ``.recovered`` it is consumed first: it is repeated,
    or its run has begun."""
    run_id: str
    conversation_id: str
    step: str
    """``3`` for a model step, ``3/call_id`` for a tool step."""
    number: int
    """The number of deliveries of this step so far; 0 if unknown."""
    title: str = ""
    """A title of the step for operators: its model or tool, and the agent. Names only."""

    @property
    def task_id(self) -> str:
        """``<run_id>:<seq>[:<call_id>]:<delivery>``, as Flower shows it."""
        return f"{self.run_id}:{self.step.replace('/', ':')}:{self.number}"

    @property
    def task_name(self) -> str:
        """The Celery task that does such a step."""
        return kind_of(queue_in_broker(self.queue) or "").task


AskingAgent = Annotated[AgentSpec, "its model is the one to call now"]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one step until a certain time. The store checks ``fence``.

    It is the answer of ``claim.lua``: each field has its name there, and a time in ms.
    """

    run_id: str
    conversation_id: str
    kind: StepKind
    step: str
    fence: int
    attempt: int
    """The number of the attempt as a retry policy counts: failed attempts plus this one."""
    try_number: int
    """The number of the attempt as watchers see it: attempts of lost workers count too."""
    elapsed: Seconds
    """Since the step was first claimed."""
    time_left: Seconds
    """Until the run's time is up."""
    agent: AskingAgent
    """Its ``model`` is the one to call now, which may be a fallback."""
    call: ToolCall | None
    """The call to answer; None for a kind that asks a model. From here on it may have taken effect: the lease is the
    record of intent."""
    log: LogTail
    """The part of the log that is for the model, beyond the position that the worker knew."""
    model: int = 0
    """The index of the model that is asked, among the agent's models, from 0."""
    calls_left: int | None = None
    """Tool calls that the run's budget has left; None for any number."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The run's."""
    submitted_by: str | None = None
    """The name of the key that submitted the run."""
    edited: bool = False
    """A person changed the arguments of ``call``."""
    out_for: Seconds | None = None
    """Since the step met the outage of its provider; None if it is in none."""
    lacking_for: Seconds = 0.0
    """Since a worker first lacked what the step needs; 0 if none did."""
    condenses: bool = False
    """The step condenses the conversation, and that is all that the run does."""
    waited: Seconds = 0.0
    """From the delivery of the step to the claim; 0 for a lease that is asked for again."""
    secrets_at: str = ""
    """Another value after each change of the conversation's secrets; empty if it has none."""
    trace: Trace | None = None
    """The trace of the run, if it has one."""
    money_capped: bool = False
    """The tenant has a cap in money: what a call of a model may cost is reserved before it begins."""
    rate_capped: bool = False
    """The tenant has a cap on requests or tokens a minute: a call is charged to it before it begins."""
    kept: str | None = None
    """The part of the call that an earlier attempt kept, as JSON: this one goes on from there."""
    answer: str | None = None
    """The answer to the question that it asked, as JSON: ``{"action": "accept", "content": {…}}``."""
    shown: str | None = None
    """The digest of the tool of ``call`` as the model was shown it; None if it is not known."""
    deliveries: tuple[Delivery, ...] = ()
    """To publish: the claim made room for them in the queue."""

    @property
    def answers(self) -> ToolCall:
        """The call to answer, of a kind that does not ask a model."""
        assert self.call is not None, f"{self.step} answers no call"
        return self.call

    def of_call(self, call: ToolCall, shown: str | None, fence: int, time_left: Seconds, secrets_at: str) -> Lease:
        """The lease of the step of a ``call`` that was asked for under this lease of a model step, and begins."""
        return replace(
            self,
            kind=TOOL,
            step=f"{self.step}/{call.id}",
            fence=fence,
            attempt=1,
            try_number=1,
            elapsed=0.0,
            time_left=time_left,
            call=call,
            log=LogTail(),
            out_for=None,
            lacking_for=0.0,
            waited=0.0,
            secrets_at=secrets_at,
            money_capped=False,
            rate_capped=False,
            shown=shown,
            deliveries=(),
        )

    @property
    def fallback(self) -> str | None:
        """The model to go on with where a retry rule says so; None if the agent has no other."""
        fallbacks = self.agent.fallbacks
        return fallbacks[self.model] if self.model < len(fallbacks) else None

    def allows(self, calls: int) -> bool:
        """Tell whether the run's budget has room for an answer with so many tool calls. If not, the store begins none
        of them."""
        return self.calls_left is None or calls <= self.calls_left

    @property
    def in_trace(self) -> Mapping[str, str]:
        """The ids by which log lines about this attempt belong to the trace of the run, if it has one."""
        if self.trace is None:
            return {}
        return {"trace_id": self.trace.trace_id, "span_id": self.trace.span_id(self.step, self.fence)}


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A message as the log has it."""

    position: int
    message: Message
    run_id: str = ""
    nudge: bool = False
    """A user message of the engine's own."""
    misfit: bool = False
    """True for such a message about the fault of the answer before it."""
    left_out_after: int | None = None
    """On such a message: images and files behind this position are words from here on."""
    through: int = 0
    """Set on a summary: the summary replaces all entries up to this position."""
    prompt_tokens: int = 0
    """On an answer: input tokens of the call that it came from; 0 if unknown."""
    opaque: Opaque | None = None
    """On an answer: what its provider wants back with it."""
    drops: str = ""
    """An origin, in an entry without a message: from here on, its own parts are not sent back to it."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a conversation's log, behind a position that is known."""

    entries: tuple[LogMessage, ...] = ()
    position: int = 0
    """The log position that ``entries`` reach."""
    position_at: int = 0
    """Time at which the entry there was written: ms since the epoch, by Redis's clock."""
    rebuilt: bool = False
    """``entries`` begin at the start of the log: the worker must discard what it had cached."""
    ends: bool = True
    """The log ends with them; else this is a page of the tail."""
    withdrawals: bytes = b""
    """The state of the log's withdrawals, for a page: another value whenever something of the log is withdrawn."""


class OfferedPlace(NamedTuple):
    """The place of a worker that settles a model step, and would go on with the next one of its run."""

    worker: str
    nonce: str
    """Names this very offer: a repeat gets the same lease."""
    lease: Seconds
    """The length of the lease."""
    known: int
    """The log position that the worker knows."""
    known_at: int
    """The time at which the entry there was written: ms since the epoch, by Redis's clock."""
    room: int = 0
    """Steps that the worker could claim besides: so many that are ready need not wait for this place."""
    queues: str = MODEL.queue
    """The queues that the worker takes from, with spaces between them: what waits in any of them comes first."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A delivery without work: its step is settled, leased to another worker, cancelled or not yet due."""

    why: str


@dataclass(frozen=True, slots=True)
class AnswerProgress:
    """The progress of a model's answer."""

    received: int
    """Bytes of the answer."""
    characters: int
    """Characters of its text."""
    quiet: float
    """Seconds since the last of it came."""
    left: float
    """Seconds until the call is given up, unless more comes."""


class Renewal(IntEnum):
    """The answer to renewing a lease."""

    GONE = 0
    """The step is settled, or another worker has the lease."""
    PROLONGED = 1
    CANCELLING = 2
    """Stop the step: the run is being cancelled, and the lease is not prolonged."""
    PAUSING = 3
    """The lease is prolonged, but the worker must abort the model call."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a change of a run: its status now, and the deliveries to publish."""

    status: str
    deliveries: tuple[Delivery, ...]
    next_run: str | None
    """The conversation's next run, which has to be started now."""
    following: tuple[Lease, ...] = ()
    """The leases with which the worker that settled goes on: of the next model step, or of the turn's tool steps."""
    due: tuple[str, ...] = ()
    """Entries of the due index, of children and parents of the run, that have to be acted on now."""

    @property
    def due_now(self) -> tuple[str, ...]:
        """All entries of the due index that have to be acted on now."""
        return (f"{self.next_run}/start", *self.due) if self.next_run else self.due

    @property
    def goes_on(self) -> bool:
        """True if a step of the conversation is near: of this run, or of the next one."""
        return self.status == RunStatus.RUNNING or self.next_run is not None


class Shown(Enum):
    """The part of its answer that a model step has written as deltas when it is settled."""

    NOTHING = "nothing"
    """It came too fast, or in one piece."""
    ALL = "all"
    HALF = "half"
    """A part of an answer that is not stored, or not as it was shown: watchers are to forget it."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer's text, or of its reasoning, for watchers, with the lease under which the model produced
    it."""

    lease: Lease
    text: str
    reasoning: bool = False

    @property
    def payload(self) -> bytes:
        """The fields of the event (`palaver.events.MessageDelta`, `palaver.events.ReasoningDelta`)."""
        return orjson.dumps({"step": self.lease.step, "attempt": self.lease.try_number, "text": self.text})


@dataclass(frozen=True, slots=True)
class ProgressDelta:
    """The progress of a call, as its tool reports it, with the lease under which the tool runs."""

    lease: Lease
    call: ToolCall
    text: str
    fraction: float | None

    @property
    def payload(self) -> bytes:
        """The fields of the event (`palaver.events.ToolProgress`)."""
        return orjson.dumps(
            {
                "step": self.lease.step,
                "attempt": self.lease.try_number,
                "call_id": self.call.id,
                "tool": self.call.name,
                "text": self.text,
                "fraction": self.fraction,
            }
        )
