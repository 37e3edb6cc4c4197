"""The table of provider faults: what a provider does wrong, and what must become of the run that meets it."""

from __future__ import annotations

from tests.process.faults.endings import CALLS, FAULTS, ODD, RECOVERIES, STOPS
from tests.process.faults.messages import ROWS as MESSAGES
from tests.process.faults.responses import ROWS as RESPONSES
from tests.process.faults.row import POLICY, Error, Row
from tests.process.faults.statuses import BY_DEFAULT, QUOTAS, WINDOWS

CHAT_COMPLETIONS = (*FAULTS, *BY_DEFAULT, *QUOTAS, *WINDOWS, *STOPS, *ODD, *CALLS, *RECOVERIES)
TABLE: tuple[Row, ...] = (*CHAT_COMPLETIONS, *MESSAGES, *RESPONSES)

__all__ = ["FAULTS", "POLICY", "TABLE", "Error", "Row"]
