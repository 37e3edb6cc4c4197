"""The table of provider faults: what a provider does wrong, and what must become of the run that meets it."""

from __future__ import annotations

from tests.process.faults.endings import CALLS, FAULTS, ODD, RECOVERIES, STOPS
from tests.process.faults.messages import ROWS as MESSAGES
from tests.process.faults.row import POLICY, Error, Row
from tests.process.faults.statuses import BY_DEFAULT, QUOTAS, WINDOWS

TABLE: tuple[Row, ...] = (*FAULTS, *BY_DEFAULT, *QUOTAS, *WINDOWS, *STOPS, *ODD, *CALLS, *RECOVERIES, *MESSAGES)

__all__ = ["FAULTS", "POLICY", "TABLE", "Error", "Row"]
