"""The records that the store has for the trace of a run: one for each attempt of a step, and one for the run itself.

Parts of scripts in ``lua/`` write them, as lines of text in this order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

import orjson

from palaver.late import dataclass
from palaver.store.redis.connection import Fields
from palaver.telemetry.traces import Trace

_RUNS: Final = 1024
"""Runs whose facts stay in memory, for their next attempts: about 1 KB each."""


@dataclass(frozen=True, slots=True, eq=False)
class RunFacts:
    """The facts that all records of a run share."""

    run_id: str
    conversation_id: str
    trace: Trace
    agent: str
    """Empty if it has no name."""
    models: Sequence[str]

    def model(self, place: int) -> str:
        """``provider/name`` of the model that is or would be asked; empty if unknown."""
        return self.models[place] if place < len(self.models) else ""


class EndedAttempt(NamedTuple):
    """An attempt of a step that is over. Times are in ms."""

    run: RunFacts
    model: str
    began: int
    ended: int
    step: str
    fence: int
    number: int
    worker: str
    tool: str
    """Empty for a model step."""
    outcome: str
    entries: int
    """The last position of the log before the outcome."""
    note: Mapping[str, Any]
    """The worker's account of it; empty if it could give none."""

    @classmethod
    def read(cls, text: str) -> Self:
        """From the text of a record. Raises ValueError for what is none."""
        *head, step, fence, number, worker, tool, outcome, entries, note = text.split("\n", 14)
        return cls(
            *_head(head),
            step,
            int(fence),
            int(number),
            worker,
            tool,
            outcome,
            int(entries),
            orjson.loads(note),
        )


class EndedRun(NamedTuple):
    """A run that is over. Times are in ms."""

    run: RunFacts
    model: str
    began: int
    ended: int
    status: str
    stop_reason: str
    tokens: Sequence[int]
    """As `AttemptNotes` tells them."""
    model_calls: int
    tool_calls: int
    error: Mapping[str, Any]
    """Empty if it did not fail."""
    events: Sequence[Mapping[str, str]]
    """``at``, ``kind`` and ``data``, JSON."""

    @classmethod
    def read(cls, text: str) -> Self:
        """From the text of a record. Raises ValueError for what is none."""
        *head, status, stop_reason, used, error, events = text.split("\n", 11)
        *tokens, model_calls, tool_calls = map(int, used.split())
        return cls(
            *_head(head),
            status,
            stop_reason,
            tokens,
            model_calls,
            tool_calls,
            orjson.loads(error) or {},
            [dict(zip(pairs[::2], pairs[1::2], strict=True)) for pairs in orjson.loads(events)],
        )


Record = EndedAttempt | EndedRun


def read(fields: Fields) -> Record:
    """An entry of the outbox.

    Raises:
        LookupError, ValueError: it is none that this version knows.
    """
    if attempt := fields.get(b"attempt"):
        return EndedAttempt.read(attempt.decode())
    return EndedRun.read(fields[b"run"].decode())


def _head(lines: Sequence[str]) -> tuple[RunFacts, str, int, int]:
    """Read the beginning of every record: the run, the model, and when it began and ended."""
    run_id, conversation_id, trace, names, model, began, ended = lines
    run = _facts(run_id, conversation_id, trace, names)
    return run, run.model(int(model)), int(began), int(ended)


@lru_cache(maxsize=_RUNS)
def _facts(run_id: str, conversation_id: str, trace: str, names: str) -> RunFacts:
    agent, *models = names.split() or ["-"]
    return RunFacts(run_id, conversation_id, Trace.from_stored(trace), "" if agent == "-" else agent, models)
