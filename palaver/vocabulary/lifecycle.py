"""The life of a run: which statuses there are, how it moves, and why it stopped.

This is the only lifecycle table. The store's scripts get it from here; a move that is not drawn is refused.

    queued ──a──> running ──c──> requires_action ──d──> running
      │             │  ╲───e──> paused ──f──> running | queued
      │             │
      b             ├──g──> completed      the model ended its turn
      │             ├──h──> incomplete     a limit stopped it
      │             ├──i──> failed         an error that no retry can mend
      │             ├──j──> cancelling ──k──> cancelled
      │             ├──l──> cancelled      no worker had a lease
      │             └──m──> expired        past its deadline
      └──> cancelled | expired | failed | paused

    a  a worker claimed the first step
    b  cancelled, paused or expired before a worker began; failed when its start was lost too often
    c  tool calls wait for an approval or for the client;  d  they were answered
    e  by request, once no worker has a lease;  f  resumed, to queued if it had not begun
    j  a cancel was acknowledged while a worker had a lease;  k  the worker let go, or its lease ended
    requires_action is paused by e too, and f leads back to it; both of them also end by b, h, l and m, and by g once
    a tool has ended the run and only they have kept it up.
    Nothing leaves a terminal status.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

RunAction: TypeAlias = Literal["cancel", "retry", "delete"]
"""The actions that a bulk request can apply to runs."""


class RunStatus(StrEnum):
    """The status of a run. Five of them mean that it is going on, five are terminal."""

    QUEUED = "queued"
    """Waits for a worker, its turn in the conversation, its start time, or a limit."""
    RUNNING = "running"
    """A step is leased, due, or backing off; then ``waiting`` says why and until when."""
    REQUIRES_ACTION = "requires_action"
    """Tool calls wait for an approval or for the client's output."""
    PAUSED = "paused"
    """Stopped by request. The run keeps its turn in the conversation."""
    CANCELLING = "cancelling"
    """The cancel is acknowledged; a worker is still stopping its step."""
    COMPLETED = "completed"
    """The model ended its turn."""
    INCOMPLETE = "incomplete"
    """Stopped by a limit; everything done so far stays."""
    FAILED = "failed"
    """Ended by an error; ``error`` says which."""
    CANCELLED = "cancelled"
    """Ended by request."""
    EXPIRED = "expired"
    """Not begun by ``start_by``, or past its ``deadline``."""

    @property
    def terminal(self) -> bool:
        """True if this status is final."""
        return not TRANSITIONS[self]

    def allows(self, action: RunAction) -> bool:
        """Tell whether a run in this status accepts the action."""
        match action:
            case "cancel":
                return not self.terminal
            case "delete":
                return self.terminal
            case "retry":
                return self.terminal and self not in (RunStatus.COMPLETED, RunStatus.CANCELLED)


_S = RunStatus
_ENDS_ANYWHERE = frozenset({_S.CANCELLED, _S.EXPIRED, _S.FAILED, _S.INCOMPLETE})

TRANSITIONS: Final = MappingProxyType(
    {
        _S.QUEUED: frozenset({_S.RUNNING, _S.PAUSED}) | _ENDS_ANYWHERE,
        _S.RUNNING: frozenset({_S.REQUIRES_ACTION, _S.PAUSED, _S.CANCELLING, _S.COMPLETED} | _ENDS_ANYWHERE),
        _S.REQUIRES_ACTION: frozenset({_S.RUNNING, _S.PAUSED, _S.COMPLETED} | _ENDS_ANYWHERE),
        _S.PAUSED: frozenset({_S.RUNNING, _S.QUEUED, _S.REQUIRES_ACTION, _S.COMPLETED} | _ENDS_ANYWHERE),
        _S.CANCELLING: frozenset({_S.CANCELLED}),
        **dict.fromkeys((_S.COMPLETED, _S.INCOMPLETE, _S.FAILED, _S.CANCELLED, _S.EXPIRED), frozenset[RunStatus]()),
    }
)
"""From each status, the statuses that a run may move to next."""


class StopReason(StrEnum):
    """Why a run ended. Each reason belongs to exactly one terminal status."""

    END_TURN = "end_turn"
    """The model answered without asking for a tool, a tool ended the run, or the client took the calls over."""
    MAX_STEPS = "max_steps"
    """The next model call would exceed the run's ``max_steps``."""
    MAX_TOKENS = "max_tokens"
    """The answer was cut at the model's output limit."""
    BUDGET = "budget"
    """The run's budget does not allow the next call, or its time is used up."""
    CONTENT_FILTER = "content_filter"
    """The provider withheld the answer."""
    CONVERSATION_FULL = "conversation_full"
    """The conversation's log has no room for another model call."""
    ERROR = "error"
    """A failure that the retry policy does not retry, or has retried often enough."""
    STUCK = "stuck"
    """The model repeats the same calls with the same results."""
    CANCELLED = "cancelled"
    """A client cancelled the run, or a later run interrupted it."""
    DEADLINE = "deadline"
    """Not begun by ``start_by``, or past ``deadline``."""

    @property
    def status(self) -> RunStatus:
        """The terminal status that this reason leads to."""
        match self:
            case StopReason.END_TURN:
                return RunStatus.COMPLETED
            case (
                StopReason.MAX_STEPS
                | StopReason.MAX_TOKENS
                | StopReason.BUDGET
                | StopReason.CONTENT_FILTER
                | StopReason.CONVERSATION_FULL
            ):
                return RunStatus.INCOMPLETE
            case StopReason.ERROR | StopReason.STUCK:
                return RunStatus.FAILED
            case StopReason.CANCELLED:
                return RunStatus.CANCELLED
            case StopReason.DEADLINE:
                return RunStatus.EXPIRED


class WaitReason(StrEnum):
    """Why no worker is working on an unfinished run; shown in ``waiting``."""

    BACKOFF = "backoff"
    """A failed step is tried again at ``until``."""
    PROVIDER_COOLDOWN = "provider_cooldown"
    """The provider asked for fewer requests, or a configured limit for it is reached; the next try is at ``until``."""
    SERVICE_COOLDOWN = "service_cooldown"
    """The service of a tool is out or asked for fewer requests, or a limit that its tools declare is reached; the next
    try is at ``until``. ``code`` names its ``limit_key`` and why: ``crm:outage``."""
    NO_WORKER = "no_worker"
    """The worker that took the step lacks what ``code`` names: ``tool:NAME``, ``provider:NAME``, or ``key:VARIABLE`` of
    the provider, or the provider refused its key: ``refused_key:PROVIDER``. Another worker may take the step at
    ``until``; without that, no worker has told of itself lately, and the first one that comes takes it."""
    CONVERSATION_BUSY = "conversation_busy"
    """Another run of the conversation has the turn; ``run_id`` names it."""
    SCHEDULED = "scheduled"
    """The time ``start_after`` has not come yet."""
    TENANT_LIMIT = "tenant_limit"
    """A cap of the tenant is reached: the one that ``code`` names."""
    APPROVAL = "approval"
    """A person must approve or deny a tool call."""
    CLIENT_TOOL = "client_tool"
    """The client must answer a tool call."""
    QUESTION = "question"
    """A person must answer what a server asks in the middle of a tool call."""
    REMOTE_TASK = "remote_task"
    """A server works on a tool call for longer; the one that ``code`` names is asked again at ``until``."""
    AGENT_RUN = "agent_run"
    """A call waits for the run of another agent; ``run_id`` names it."""
    STORE = "store"
    """The store takes no writes; ``code`` says why: ``memory``, ``disk``, ``replica`` or ``replicas``. No record says
    so: it is found when the run is read."""


class StepState(StrEnum):
    """The state of an open step. The last three occur in runs that wait, are paused, or end."""

    READY = "ready"
    """The step was delivered; it is in the ready index of its queue."""
    LEASED = "leased"
    """A worker has it; in the due index by the end of the lease."""
    LATER = "later"
    """In the due index: a retry, or postponed."""
    AWAITING = "awaiting"
    """It waits for a decision or a client's output; in the due index by the end of that."""
    PARKED = "parked"
    """Its run is paused."""
    ABORTED = "aborted"
    """The step is abandoned. Its record stays until the run ends, so that the result of its call says truthfully what
    happened."""
