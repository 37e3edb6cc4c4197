"""The tables from ours to the UI message stream's: each has a row for every member of a closed list."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, get_args

from api.http.problems import CODES
from api.kit.dialects import ClosedTable
from api.kit.shown_run import ADVICE
from palaver.errors import UserAction
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason

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
        WaitReason.STORE: "The server cannot go on yet.",
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
        "user actions": ClosedTable(get_args(UserAction), ADVICE),
        "waits": ClosedTable(tuple(WaitReason), WAITS),
        "stops": ClosedTable(tuple(StopReason), FINISHES),
        "statuses": ClosedTable(tuple(RunStatus), STATUSES),
        "problems": ClosedTable(
            {str(status) for status, _ in CODES.values()}, {str(status): name for status, name in CLASSES.items()}
        ),
    }
)
