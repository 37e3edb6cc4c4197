"""The table of provider faults: what a provider does wrong, and what must become of the run that meets it."""

from __future__ import annotations

from collections.abc import Mapping

from tests.process.faults.endings import CALLS, FAULTS, ODD, RECOVERIES, STOPS
from tests.process.faults.messages import ROWS as MESSAGES
from tests.process.faults.responses import ROWS as RESPONSES
from tests.process.faults.row import POLICY, Error, Row
from tests.process.faults.statuses import BY_DEFAULT, QUOTAS, WINDOWS

BY_PROTOCOL: Mapping[str, tuple[Row, ...]] = {
    "chat_completions": (*FAULTS, *BY_DEFAULT, *QUOTAS, *WINDOWS, *STOPS, *ODD, *CALLS, *RECOVERIES),
    "anthropic": MESSAGES,
    "responses": RESPONSES,
}
TABLE: tuple[Row, ...] = tuple(row for rows in BY_PROTOCOL.values() for row in rows)

__all__ = ["BY_PROTOCOL", "POLICY", "TABLE", "Error", "Row"]
