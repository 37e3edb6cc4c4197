"""What is left when everything has ended. File descriptors and memory: tests/process/test_leaks.py."""

from __future__ import annotations

from tests.checkers.evidence import Evidence


def nothing_left(evidence: Evidence) -> None:
    """I12: no open step, nothing due, no message in the broker."""
    assert not evidence.left, f"left over: {dict(evidence.left)}"


def keys_expire(evidence: Evidence) -> None:
    """I12: every key of a conversation without unfinished runs has a time to live."""
    for history in evidence.histories:
        if all(run.status.terminal for run in history.runs.values()):
            assert not history.immortal, f"{history.conversation.id} is over, and {history.immortal} do not expire"
