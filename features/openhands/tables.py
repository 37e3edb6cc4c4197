"""The tables from ours to OpenHands': statuses of runs, error classes, limits, problems; and their readers.

Each has a row for every member that it is about, or says what holds for the others: the dialect declares them, and a
test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, get_args

from api.kit.dialects import ClosedTable
from palaver.errors import FACTS, ErrorClass, ErrorObject, UserAction
from palaver.vocabulary.lifecycle import RunStatus, StopReason


class ExecutionStatus(StrEnum):
    """The statuses that clients know; any other one is an error to them."""

    IDLE = "idle"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting_for_confirmation"
    FINISHED = "finished"
    ERROR = "error"
    STUCK = "stuck"
    DELETING = "deleting"

    @property
    def over(self) -> bool:
        """True if a message of the user makes it idle."""
        return self in (ExecutionStatus.FINISHED, ExecutionStatus.STUCK)


RUN_STATUSES: Final[Mapping[str, ExecutionStatus]] = MappingProxyType(
    {
        "idle": ExecutionStatus.IDLE,
        RunStatus.QUEUED: ExecutionStatus.RUNNING,
        RunStatus.RUNNING: ExecutionStatus.RUNNING,
        RunStatus.REQUIRES_ACTION: ExecutionStatus.WAITING,
        RunStatus.PAUSED: ExecutionStatus.PAUSED,
        RunStatus.CANCELLING: ExecutionStatus.RUNNING,
        RunStatus.COMPLETED: ExecutionStatus.FINISHED,
        RunStatus.INCOMPLETE: ExecutionStatus.ERROR,
        RunStatus.FAILED: ExecutionStatus.ERROR,
        # What was rejected ends so; a pause or an interrupt does not end a run here.
        RunStatus.CANCELLED: ExecutionStatus.IDLE,
        RunStatus.EXPIRED: ExecutionStatus.ERROR,
    }
)
"""Execution statuses by the status of a run, or `idle` for a conversation that has none. A run that waits is
running."""
FOUND_BY: Final[Mapping[ExecutionStatus, tuple[str, ...]]] = MappingProxyType(
    {
        ExecutionStatus.IDLE: ("idle", RunStatus.CANCELLED),
        ExecutionStatus.RUNNING: (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.CANCELLING),
        ExecutionStatus.PAUSED: (RunStatus.PAUSED,),
        ExecutionStatus.WAITING: (RunStatus.REQUIRES_ACTION,),
        ExecutionStatus.FINISHED: (RunStatus.COMPLETED,),
        ExecutionStatus.ERROR: (RunStatus.FAILED, RunStatus.INCOMPLETE, RunStatus.EXPIRED),
        ExecutionStatus.STUCK: (RunStatus.FAILED,),
    }
)
"""Statuses of the newest run by execution status. A run that is stuck has failed."""
_C = ErrorClass
CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        _C.RATE_LIMITED: "LLMRateLimitError",
        _C.PROVIDER_ERROR: "LLMServiceUnavailableError",
        _C.CONNECTION: "LLMServiceUnavailableError",
        _C.TIMEOUT: "LLMTimeoutError",
        _C.QUOTA_EXHAUSTED: "LLMRateLimitError",
        _C.AUTHENTICATION: "LLMAuthenticationError",
        _C.PERMISSION: "LLMAuthenticationError",
        _C.NOT_FOUND: "LLMBadRequestError",
        _C.INVALID_REQUEST: "LLMBadRequestError",
        _C.CONTEXT_WINDOW: "LLMContextWindowExceedError",
        _C.CONTENT_FILTER: "LLMContentPolicyViolationError",
        _C.INVALID_OUTPUT: "LLMNoResponseError",
        _C.INVALID_TOOL_CALL: "FunctionCallValidationError",
        _C.TOOL_DENIED: "UserRejected",
        _C.STORAGE: "StorageError",
        _C.INTERNAL: "InternalError",
    }
)
"""Codes by error class: names of exceptions of OpenHands' SDK. Others have the name of the class, as its server has it
for exceptions that are not the SDK's: ``TOOL_TIMEOUT`` is ``ToolTimeout``."""
KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "retry": "transient",
        "wait": "transient",
        "settings": "config",
        "fix_input": "agent_action",
        "none": "agent_action",
    }
)
"""Kinds of errors by the user action of the class."""
OTHER_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        _C.RATE_LIMITED: "rate_limit",
        _C.QUOTA_EXHAUSTED: "quota",
        _C.AUTHENTICATION: "auth",
        _C.PERMISSION: "auth",
        _C.INVALID_REQUEST: "config",
        _C.INTERNAL: "internal",
    }
)
"""Kinds of errors by class, of which clients have a more precise one."""
_CLASSES: Final = frozenset(each.value for each in _C)


def error_code(error_class: str) -> tuple[str, str]:
    """Return the code and the kind of an error by its class; also of a class that only a newer version knows."""
    if error_class not in _CLASSES:
        return CODES[_C.INTERNAL], "unknown"
    code = CODES.get(error_class) or error_class.title().replace("_", "")
    return code, OTHER_KINDS.get(error_class) or KINDS[FACTS[_C(error_class)].user_action]


LIMITS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        StopReason.MAX_STEPS: ("MaxIterationsReached", "agent_action", "Agent reached maximum iterations limit."),
        StopReason.MAX_TOKENS: ("MaxTokensReached", "agent_action", "The answer was cut at the model's output limit."),
        StopReason.BUDGET: ("MaxBudgetReached", "quota", "The budget of the run is used up."),
        StopReason.CONTENT_FILTER: (*error_code(_C.CONTENT_FILTER), "The provider withheld the answer."),
        StopReason.CONVERSATION_FULL: (
            "ConversationFull",
            "agent_action",
            "The conversation is full: begin a new one.",
        ),
        StopReason.DEADLINE: ("DeadlineReached", "quota", "The time that the run had is over."),
    }
)
"""By stop reason of a run that a limit ended: the code, the kind and a sentence."""
HTTP_STATUS: Final[Mapping[str, int]] = MappingProxyType(
    # Clients take 409 for a run that goes on, which they wait for, 429 for what passes, any other 4xx for the end.
    {
        "steering_full": 429,
        "queue_full": 429,
        "conversation_changed": 429,
        "conversation_full": 422,
        "conversation_moved_on": 422,
        "nothing_to_answer": 422,
        "nothing_to_retry": 422,
    }
)
"""HTTP statuses by code of a problem, where they are not the same as ours."""
TABLES: Final[Mapping[str, ClosedTable]] = MappingProxyType(
    {
        "user actions": ClosedTable(get_args(UserAction), KINDS),
        "error codes": ClosedTable((), CODES, optional=tuple(ErrorClass)),
        "error kinds": ClosedTable((), OTHER_KINDS, optional=tuple(ErrorClass)),
        "statuses": ClosedTable(("idle", *RunStatus), RUN_STATUSES),
        # What is found by its status: what is about to go is not looked for.
        "searches": ClosedTable(
            [member for member in ExecutionStatus if member is not ExecutionStatus.DELETING], FOUND_BY
        ),
        "limits": ClosedTable(
            [member for member in StopReason if member.status in (RunStatus.INCOMPLETE, RunStatus.EXPIRED)], LIMITS
        ),
    }
)
_ACTIONS: Final = frozenset({"retry", "settings"})


def execution_status(status: str, stop_reason: str | None = None) -> ExecutionStatus:
    """Return the execution status for that of a run, and for the reason why it stopped, if it has."""
    if stop_reason == StopReason.STUCK:
        return ExecutionStatus.STUCK
    return RUN_STATUSES.get(status, ExecutionStatus.RUNNING)


def of_failure(error: ErrorObject) -> tuple[str, str, dict[str, Any]]:
    """Return the code, the sentence and the classification of a failure."""
    code, kind = error_code(error["class"])
    advice = "retry" if error["user_action"] == "wait" else error["user_action"]
    return code, _with_its_words(error["message"], error), _classified(kind, advice, retryable=error["retryable"])


def of_limit(reason: str, details: ErrorObject | None) -> tuple[str, str, dict[str, Any]]:
    """Return the code, the sentence and the classification of a limit that has ended a run, with its
    ``incomplete_details``; also of a limit that only a newer version knows."""
    code, kind, sentence = LIMITS.get(reason, ("RunEnded", "unknown", f"The run ended: {reason}."))
    return code, _with_its_words(sentence, details), _classified(kind, "retry", retryable=False)


def _with_its_words(sentence: str, error: ErrorObject | None) -> str:
    """Return a sentence of ours with the provider's own behind it, if there is one."""
    provider = error.get("provider") if error else None
    words = provider.get("message") if provider else None
    return f"{sentence} The provider said: {words}" if words else sentence


def _classified(kind: str, advice: str, *, retryable: bool) -> dict[str, Any]:
    return {"kind": kind, "retryable": retryable, "user_action": advice if advice in _ACTIONS else "none"}
