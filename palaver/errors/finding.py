"""The facts about a failed call of a tool, as the exception carries them to its step."""

from __future__ import annotations

from palaver.errors.failure import Failure
from palaver.errors.outages import OutageSign
from palaver.late import dataclass


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """The facts about a failed call of a tool."""

    failure: Failure
    sent: bool
    """The tool's service may have taken the call. Without it another try acts for the first time."""
    sign: OutageSign | None = None
    """The failure is one as in an outage of the service."""
    answered: bool = False
    """The service answered, whatever it said."""
