"""Batches: many runs of the same agents over a list of inputs, and a table of what came of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from palaver.schemas.fields import AgentReference, AtMost, Metadata, Strict, Tags
from palaver.schemas.models import AgentSpec, Budget, Message, Waiting

BatchState = Literal["open", "running", "cancelling", "cancelled", "failed", "done"]
CellStatus = Literal["completed", "incomplete", "failed", "cancelled", "expired", "refused", "unknown"]
BatchVerb = Literal["cancel", "retry"]


class BatchItem(Strict):
    """An input that each agent of a batch is asked."""

    input: Annotated[str | tuple[Message, ...], AtMost("input_text", items="input_messages")]
    id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Your name for it in the table of results; its number without one."""
    expected: Annotated[str, AtMost("batch_expected")] | None = None
    """The sense of a good answer, for the scorer."""
    metadata: Metadata = Field(default={})


class BatchHead(Strict):
    """The part of a batch that holds for all of its runs."""

    agents: Annotated[tuple[AgentSpec | AgentReference, ...], AtMost("batch_agents"), Field(min_length=1)]
    """The agents to ask, whole or by the names of those on the server: several to compare them."""
    repeats: int = Field(default=1, ge=1, le=100)
    """The number of times that each agent is asked each input."""
    scorer: AgentSpec | AgentReference | None = None
    """An agent that judges each answer. It is told the input, what was expected and the answer; its own answer, as JSON
    if its ``response_format`` asks for that, is the verdict: ``pass`` (a boolean) and ``score`` are counted."""
    window: int = Field(default=32, ge=1, le=200)
    """Runs that are unfinished at once."""
    priority: int = Field(default=8, ge=0, le=9)
    """The place among the runs of its tenant: behind those that somebody waits for."""
    budget: Budget | None = None
    """The most that each run may use."""
    tags: Tags = ()
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None


class NewBatch(BatchHead):
    """The body of ``POST /v1/batches``."""

    items: Annotated[tuple[BatchItem, ...], AtMost("batch_part")] = ()
    """The inputs, or the first of them."""
    complete: bool = True
    """False: more items come with ``POST /v1/batches/{id}/items``."""

    @property
    def head(self) -> BatchHead:
        """The part without the items."""
        return BatchHead(
            **{name: getattr(self, name) for name in BatchHead.model_fields if name in self.model_fields_set}
        )


class MoreItems(Strict):
    """The body of ``POST /v1/batches/{id}/items``."""

    offset: int = Field(ge=0)
    """The number of items that came before: whoever repeats a part changes nothing."""
    items: Annotated[tuple[BatchItem, ...], AtMost("batch_part")] = ()
    complete: bool = False
    """True if these are the last."""


class AgentTotals(BaseModel):
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


class Batch(BaseModel):
    """A batch, and how far it is."""

    id: str
    name: str | None
    state: BatchState
    reason: str | None = None
    """Why it was cancelled, if nobody asked for that; why it failed, or will."""
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


class BatchResult(BaseModel):
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
