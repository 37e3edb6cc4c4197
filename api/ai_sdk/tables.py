"""The tables from ours to the UI message stream's: each has a row for every member of a closed list."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.errors import ErrorClass
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason

from ..dialects import ClosedTable
from ..problems import CODES

ERRORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        ErrorClass.RATE_LIMITED: "The model is asked too much at the moment. Try again later.",
        ErrorClass.PROVIDER_ERROR: "The model's provider failed to answer. Try again.",
        ErrorClass.CONNECTION: "The model's provider cannot be reached. Try again.",
        ErrorClass.TIMEOUT: "The model took too long to answer. Try again.",
        ErrorClass.QUOTA_EXHAUSTED: "The quota at the model's provider is used up.",
        ErrorClass.AUTHENTICATION: "The model's provider does not accept the server's key.",
        ErrorClass.PERMISSION: "The model's provider does not allow this.",
        ErrorClass.NOT_FOUND: "There is no such model.",
        ErrorClass.INVALID_REQUEST: "The model's provider refused the request.",
        ErrorClass.CONTEXT_WINDOW: "The conversation is too long for the model.",
        ErrorClass.CONTENT_FILTER: "The model's provider withheld the answer.",
        ErrorClass.INVALID_OUTPUT: "The model did not answer in the form that was asked for.",
        ErrorClass.INVALID_TOOL_CALL: "The model called a tool in a wrong way.",
        ErrorClass.TOOL_ERROR: "A tool failed.",
        ErrorClass.TOOL_TIMEOUT: "A tool took too long.",
        ErrorClass.TOOL_INTERRUPTED: "A tool was interrupted: it may or may not have taken effect.",
        ErrorClass.TOOL_DENIED: "A tool was not allowed to run.",
        ErrorClass.WORKER_LOST: "The server lost this answer. Try again.",
        ErrorClass.NO_WORKER: "Nobody on the server could work on this.",
        ErrorClass.STUCK: "The model repeated itself, and was stopped.",
        ErrorClass.STORAGE: "The server's store is not available. Try again.",
        ErrorClass.INTERNAL: "Something went wrong on the server.",
    }
)
"""A sentence for a person who chats, by class: a provider's own words are for whoever runs the server."""
WAITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        WaitReason.BACKOFF: "Something failed. It is tried again.",
        WaitReason.PROVIDER_COOLDOWN: "The model is busy.",
        WaitReason.SERVICE_COOLDOWN: "A service that a tool needs is busy.",
        WaitReason.NO_WORKER: "Nobody on the server can work on this yet.",
        WaitReason.CONVERSATION_BUSY: "Another answer comes first.",
        WaitReason.SCHEDULED: "It begins later.",
        WaitReason.TENANT_LIMIT: "Others are served first.",
        WaitReason.APPROVAL: "Somebody has to approve a call.",
        WaitReason.CLIENT_TOOL: "The page has to answer a call.",
        WaitReason.QUESTION: "A service has a question for a person.",
        WaitReason.AGENT_RUN: "Another agent works on this.",
        WaitReason.REMOTE_TASK: "A service works on this.",
    }
)
"""A sentence for a person who waits, by reason."""
FINISHES: Final[Mapping[str, str]] = MappingProxyType(
    {
        StopReason.END_TURN: "stop",
        StopReason.MAX_STEPS: "other",
        StopReason.MAX_TOKENS: "length",
        StopReason.BUDGET: "other",
        StopReason.CONTENT_FILTER: "content-filter",
        StopReason.CONVERSATION_FULL: "other",
        StopReason.ERROR: "error",
        StopReason.STUCK: "error",
        StopReason.CANCELLED: "interrupted",
        StopReason.DEADLINE: "error",
    }
)
"""The ``finishReason`` by the reason for which a run stopped."""
STATUSES: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        RunStatus.QUEUED: "queued",
        RunStatus.RUNNING: "running",
        RunStatus.REQUIRES_ACTION: None,
        RunStatus.PAUSED: "paused",
        RunStatus.CANCELLING: "stopping",
        RunStatus.COMPLETED: None,
        RunStatus.INCOMPLETE: None,
        RunStatus.FAILED: None,
        RunStatus.CANCELLED: None,
        RunStatus.EXPIRED: None,
    }
)
"""The word for a status in ``data-palaver-status``; None where the stream ends, which says more."""
CLASSES: Final[Mapping[int, str]] = MappingProxyType(
    {
        400: "invalid_request",
        401: "authentication",
        403: "permission",
        404: "not_found",
        405: "invalid_request",
        406: "invalid_request",
        408: "timeout",
        409: "conflict",
        410: "conflict",
        412: "conflict",
        413: "limit",
        414: "limit",
        415: "invalid_request",
        422: "invalid_request",
        429: "limit",
        431: "limit",
        500: "internal",
        503: "unavailable",
    }
)
"""The class of a problem that ends a request, by its status."""
TABLES: Final[Mapping[str, ClosedTable]] = MappingProxyType(
    {
        "error classes": ClosedTable(tuple(ErrorClass), ERRORS),
        "waits": ClosedTable(tuple(WaitReason), WAITS),
        "stops": ClosedTable(tuple(StopReason), FINISHES),
        "statuses": ClosedTable(tuple(RunStatus), STATUSES),
        "problems": ClosedTable(
            {str(status) for status, _ in CODES.values()}, {str(status): name for status, name in CLASSES.items()}
        ),
    }
)
