"""Records of runs and conversations, for storage that outlives the server's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SCHEMA: Final = 1
"""The shape of the records; it grows when a reader of older ones would misunderstand them."""


def record(kind: str, **what: Any) -> dict[str, Any]:
    """A record: ``schema``, ``kind``, and what the API says."""
    return {"schema": SCHEMA, "kind": kind, **what}


class Exported:
    """The contents of an export, so that the next one brings only what is new."""

    __slots__ = ("_positions", "_runs")

    def __init__(self) -> None:
        self._runs: set[str] = set()
        self._positions: dict[str, int] = {}

    def __contains__(self, run_id: str) -> bool:
        """Tell whether there is a record of the run as it ended."""
        return run_id in self._runs

    def __len__(self) -> int:
        """Count the runs that are there as they ended."""
        return len(self._runs)

    def position(self, conversation_id: str) -> int:
        """The position of the last message of a conversation that there is; 0 for none."""
        return self._positions.get(conversation_id, 0)

    def add(self, record: Mapping[str, Any]) -> None:
        """Note a record. Those of events and conversations change nothing: they come with their run."""
        match record:
            case {"kind": "run", "run": {"id": str(run_id), "times": {"ended_at": str()}}}:
                self._runs.add(run_id)
            case {"kind": "message", "conversation_id": str(of), "message": {"position": int(position)}}:
                self._positions[of] = max(position, self.position(of))
