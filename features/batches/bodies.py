"""Bodies of requests about batches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from palaver.schemas.batches import BatchItem
from palaver.schemas.fields import AgentReference, AtMost, Strict, Tags
from palaver.schemas.models import AgentSpec, Budget

BatchVerb = Literal["cancel", "retry"]


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
    """The place among the runs of its tenant: behind those that people wait for."""
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
    """The number of items that came before: repeating a part changes nothing."""
    items: Annotated[tuple[BatchItem, ...], AtMost("batch_part")] = ()
    complete: bool = False
    """True if these are the last."""
