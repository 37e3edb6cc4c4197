"""Execution statuses: what OpenHands calls the state of a conversation. There is none for waiting: that is running."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.lifecycle import RunStatus, StopReason


class ExecutionStatus(StrEnum):
    """Those that clients know; any other one is an error to them."""

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
        """Whether a message of the user makes it idle."""
        return self in (ExecutionStatus.FINISHED, ExecutionStatus.STUCK)


_OF_RUNS: Final[Mapping[str, ExecutionStatus]] = MappingProxyType(
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


def execution_status(status: str, stop_reason: str | None = None) -> ExecutionStatus:
    """That of a run, and why it stopped if it has."""
    if stop_reason == StopReason.STUCK:
        return ExecutionStatus.STUCK
    return _OF_RUNS.get(status, ExecutionStatus.RUNNING)
