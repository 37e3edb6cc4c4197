"""Batches: many runs of the same agents over a list of inputs, and a table of what came of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from palaver.schemas.fields import AtMost, DataModel, Metadata, Strict
from palaver.schemas.models import Message, Waiting

BatchState = Literal["open", "running", "cancelling", "cancelled", "failed", "done"]
CellStatus = Literal["completed", "incomplete", "failed", "cancelled", "expired", "refused", "unknown"]


class BatchItem(Strict):
    """An input that each agent of a batch is asked."""

    input: Annotated[str | tuple[Message, ...], AtMost("input_text", items="input_messages")]
    id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Your name for it in the table of results; its number without one."""
    expected: Annotated[str, AtMost("batch_expected")] | None = None
    """The sense of a good answer, for the scorer."""
    metadata: Metadata = Field(default={})


class AgentTotals(DataModel):
    """The sums of the runs of one agent."""

    agent: str
    ended: dict[CellStatus, int]
    """Runs by what they ended with."""
    cost_usd: float | None
    """None if that of a run is unknown."""
    input_tokens: int
    output_tokens: int
    seconds: float
    """From the start of a run to its end, on average."""
    scored: int
    """Runs with a verdict."""
    passed: int
    """Runs whose verdict says ``pass``."""


class Batch(DataModel):
    """A batch, and how far it is."""

    id: str
    name: str | None
    state: BatchState
    reason: str | None = None
    """Why it was cancelled, if that was not asked for; why it failed, or will."""
    waiting: Waiting | None = None
    """Why it does not go on: ``no_worker``, no worker takes model steps."""
    items: int
    cells: int
    """Runs that there will be: items times agents times repeats."""
    begun: int
    in_flight: int
    ended: int
    totals: tuple[AgentTotals, ...]
    created_at: datetime
    created_by: str | None


class BatchResult(DataModel):
    """The result of one run of a batch."""

    cell: int
    """Its number in the batch."""
    item: str
    agent: str
    repeat: int
    """From 1."""
    attempt: int
    """From 1: retries of the batch count."""
    status: CellStatus
    run_id: str | None = None
    stop_reason: str | None = None
    error_class: str | None = None
    code: str | None = None
    cost_usd: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float | None = None
    output: str | None = None
    """The first 500 characters of its answer."""
    verdict: Any = None
    """The answer of the scorer."""
    score_run_id: str | None = None
