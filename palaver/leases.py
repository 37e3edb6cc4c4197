"""What moves between the store, the broker and the workers: deliveries and leases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import orjson

from palaver.models import AgentSpec, Message, ToolCall
from palaver.opaque import Opaque
from palaver.step_kinds import KIND_OF, RECOVERED


@dataclass(frozen=True, slots=True)
class Delivery:
    """A Celery message that asks a worker to try a step. Only a hint: it may be lost, late or doubled."""

    queue: str
    """That of its step's kind; with ``.recovered`` behind it when it is delivered again: consumed first."""
    run_id: str
    conversation_id: str
    step: str
    """``3`` for a model step, ``3/call_id`` for a tool step."""
    number: int
    """How often this step was delivered."""

    @property
    def task_id(self) -> str:
        """``<run_id>:<seq>[:<call_id>]:<delivery>``, as Flower shows it."""
        return f"{self.run_id}:{self.step.replace('/', ':')}:{self.number}"

    @property
    def task_name(self) -> str:
        """The Celery task that does such a step."""
        return KIND_OF[self.queue.removesuffix(RECOVERED)].task


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one step until a time; ``fence`` is what the store checks."""

    run_id: str
    conversation_id: str
    step: str
    fence: int
    attempt: int
    """Tries that ended in a failure, this one included: what a retry policy counts."""
    try_number: int
    """Tries by any worker, lost ones included: what watchers see."""
    elapsed: float
    """Seconds since the step was first claimed."""
    time_left: float
    """Seconds until the run's time is up."""
    agent: AgentSpec
    """Its ``model`` is the one to ask now, be it a fallback."""
    falls_back: bool
    """Whether there is another model to go on with."""
    call: ToolCall | None
    """The call to answer; None for a model step."""
    position: int
    """The log position that ``entries`` reaches."""
    entries: tuple[LogMessage, ...]
    """What the log has for the model beyond the position that the worker knew."""
    position_at: int = 0
    """When the entry at ``position`` was written: ms since the epoch, by Redis's clock."""
    calls_left: int | None = None
    """Tool calls that the run's budget has left; None for any number."""
    rebuilt: bool = False
    """``entries`` begin where the log does: what the worker knew before, if anything, is not right any more."""
    edited: bool = False
    """Somebody changed the arguments of ``call``."""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A message as the log has it."""

    position: int
    message: Message
    run_id: str = ""
    nudge: bool = False
    """A user message of the engine's own."""
    through: int = 0
    """Set on a summary: it stands for everything up to this position."""
    prompt_tokens: int = 0
    """On an answer: input tokens of the call that it came from; 0 if unknown."""
    opaque: Opaque | None = None
    """On an answer: what its provider wants back with it."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A delivery that asks for nothing: its step is settled, held elsewhere, cancelled or not yet due."""

    why: str


class Renewal(IntEnum):
    """The answer to renewing a lease."""

    GONE = 0
    """Settled, or somebody else's."""
    PROLONGED = 1
    CANCELLING = 2
    """Let the run go; the lease is not prolonged."""
    PAUSING = 3
    """Prolonged; but abort the model call."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What applying a verdict brought: where the run is now and what to publish."""

    status: str
    deliveries: tuple[Delivery, ...]
    next_run: str | None
    """The conversation's next run: wake it now."""


@dataclass(frozen=True, slots=True)
class Delta:
    """More text of an answer, for watchers, written under the lease it was made under."""

    lease: Lease
    text: str

    @property
    def payload(self) -> bytes:
        """What the event carries (`palaver.events.MessageDelta`)."""
        return orjson.dumps({"step": self.lease.step, "attempt": self.lease.try_number, "text": self.text})
