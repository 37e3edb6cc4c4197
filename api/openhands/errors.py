"""Failures as OpenHands names them: the code, which is the name of an exception of its SDK, and what kind it is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from palaver.errors import ErrorClass, ErrorObject
from palaver.vocabulary.lifecycle import StopReason

_C = ErrorClass
_CODES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        _C.RATE_LIMITED: ("LLMRateLimitError", "rate_limit"),
        _C.PROVIDER_ERROR: ("LLMServiceUnavailableError", "transient"),
        _C.CONNECTION: ("LLMServiceUnavailableError", "transient"),
        _C.TIMEOUT: ("LLMTimeoutError", "transient"),
        _C.QUOTA_EXHAUSTED: ("LLMRateLimitError", "quota"),
        _C.AUTHENTICATION: ("LLMAuthenticationError", "auth"),
        _C.PERMISSION: ("LLMAuthenticationError", "auth"),
        _C.NOT_FOUND: ("LLMBadRequestError", "config"),
        _C.INVALID_REQUEST: ("LLMBadRequestError", "config"),
        _C.CONTEXT_WINDOW: ("LLMContextWindowExceedError", "agent_action"),
        _C.CONTENT_FILTER: ("LLMContentPolicyViolationError", "agent_action"),
        _C.INVALID_OUTPUT: ("LLMNoResponseError", "agent_action"),
        _C.INVALID_TOOL_CALL: ("FunctionCallValidationError", "agent_action"),
        _C.TOOL_ERROR: ("ToolError", "agent_action"),
        _C.TOOL_TIMEOUT: ("ToolTimeout", "agent_action"),
        _C.TOOL_INTERRUPTED: ("ToolInterrupted", "agent_action"),
        _C.TOOL_DENIED: ("UserRejected", "agent_action"),
        _C.WORKER_LOST: ("WorkerLost", "transient"),
        _C.NO_WORKER: ("NoWorker", "config"),
        _C.STUCK: ("Stuck", "agent_action"),
        _C.STORAGE: ("StorageError", "transient"),
        _C.INTERNAL: ("InternalError", "internal"),
    }
)
_LIMITS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        StopReason.MAX_STEPS: ("MaxIterationsReached", "agent_action", "Agent reached maximum iterations limit."),
        StopReason.MAX_TOKENS: ("MaxTokensReached", "agent_action", "The answer was cut at the model's output limit."),
        StopReason.BUDGET: ("MaxBudgetReached", "quota", "The budget of the run is used up."),
        StopReason.CONTENT_FILTER: (*_CODES[_C.CONTENT_FILTER], "The provider withheld the answer."),
        StopReason.CONVERSATION_FULL: (
            "ConversationFull",
            "agent_action",
            "The conversation is full: begin a new one.",
        ),
        StopReason.DEADLINE: ("DeadlineReached", "quota", "The time that the run had is over."),
    }
)
_ACTIONS: Final = frozenset({"retry", "settings"})


def of_failure(error: ErrorObject) -> tuple[str, str, dict[str, Any]]:
    """The code, the sentence and the classification of a failure."""
    code, kind = _CODES.get(error["class"], ("InternalError", "unknown"))
    advice = "retry" if error["user_action"] == "wait" else error["user_action"]
    return code, _with_its_words(error["message"], error), _classified(kind, advice, retryable=error["retryable"])


def of_limit(reason: str, details: ErrorObject | None) -> tuple[str, str, dict[str, Any]]:
    """The same for a limit that has ended a run, with its ``incomplete_details``; also for one that only a newer
    version knows."""
    code, kind, sentence = _LIMITS.get(reason, ("RunEnded", "unknown", f"The run ended: {reason}."))
    return code, _with_its_words(sentence, details), _classified(kind, "retry", retryable=False)


def _with_its_words(sentence: str, error: ErrorObject | None) -> str:
    """A sentence of ours, and the provider's own."""
    provider = error.get("provider") if error else None
    words = provider.get("message") if provider else None
    return f"{sentence} The provider said: {words}" if words else sentence


def _classified(kind: str, advice: str, *, retryable: bool) -> dict[str, Any]:
    return {"kind": kind, "retryable": retryable, "user_action": advice if advice in _ACTIONS else "none"}
