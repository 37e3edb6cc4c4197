"""The tables from ours to AG-UI's: each has a row for every member of a closed list."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, get_args

from api.kit.dialects import ClosedTable
from api.kit.shown_run import ADVICE
from palaver.errors import UserAction
from palaver.vocabulary.lifecycle import StopReason

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
        "user actions": ClosedTable(get_args(UserAction), ADVICE),
        "stops": ClosedTable(tuple(StopReason), OUTCOMES),
    }
)
