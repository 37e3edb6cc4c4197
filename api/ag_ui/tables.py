"""The tables from ours to AG-UI's: each has a row for every member of a closed list."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.errors import ErrorClass
from palaver.vocabulary.lifecycle import StopReason

from ..dialects import ClosedTable

ERRORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        ErrorClass.RATE_LIMITED: "The model's provider takes no more requests now.",
        ErrorClass.PROVIDER_ERROR: "The model's provider failed.",
        ErrorClass.CONNECTION: "The model's provider was not reached.",
        ErrorClass.TIMEOUT: "The model did not answer in time.",
        ErrorClass.QUOTA_EXHAUSTED: "The account at the model's provider has nothing left.",
        ErrorClass.AUTHENTICATION: "The model's provider refused the server's key.",
        ErrorClass.PERMISSION: "The model's provider did not allow the request.",
        ErrorClass.NOT_FOUND: "The model's provider does not have the model.",
        ErrorClass.INVALID_REQUEST: "The model's provider did not take the request.",
        ErrorClass.CONTEXT_WINDOW: "The thread does not fit into the model.",
        ErrorClass.CONTENT_FILTER: "The model's provider withheld the answer.",
        ErrorClass.INVALID_OUTPUT: "The answer did not have the form that was asked for.",
        ErrorClass.INVALID_TOOL_CALL: "The model made a call that cannot be made.",
        ErrorClass.TOOL_ERROR: "A tool failed.",
        ErrorClass.TOOL_TIMEOUT: "A tool did not answer in time.",
        ErrorClass.TOOL_INTERRUPTED: "A tool was cut off, and may have taken effect.",
        ErrorClass.TOOL_DENIED: "A call was not allowed.",
        ErrorClass.WORKER_LOST: "The workers that took it died.",
        ErrorClass.NO_WORKER: "No worker can do it.",
        ErrorClass.STUCK: "The model went round in circles.",
        ErrorClass.STORAGE: "The server's store is not available.",
        ErrorClass.INTERNAL: "The server failed.",
    }
)
"""The ``message`` of a ``RUN_ERROR`` by class: what a provider says itself is not for a page."""
OUTCOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        StopReason.END_TURN: "success",
        StopReason.MAX_STEPS: "success",
        StopReason.MAX_TOKENS: "success",
        StopReason.BUDGET: "success",
        StopReason.CONTENT_FILTER: "success",
        StopReason.CONVERSATION_FULL: "success",
        StopReason.ERROR: "error",
        StopReason.STUCK: "error",
        StopReason.CANCELLED: "cancelled",
        StopReason.DEADLINE: "error",
    }
)
"""The type of the outcome by the reason for which a run stopped; ``error`` is a ``RUN_ERROR``. Of a limit, the
``result`` says which."""
TABLES: Final[Mapping[str, ClosedTable]] = MappingProxyType(
    {
        "error classes": ClosedTable(tuple(ErrorClass), ERRORS),
        "stops": ClosedTable(tuple(StopReason), OUTCOMES),
    }
)
