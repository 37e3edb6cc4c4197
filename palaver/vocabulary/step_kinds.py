"""The kinds of steps. Queues, lists in Redis, Celery's tasks and routes, and statistics follow from this table.

The work of each kind is the function with its ``@step`` (``workers/steps/registry.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import WithJsonSchema


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of step."""

    name: str
    queue: str
    """Its own: the workers of each kind are scaled apart."""
    isolated: bool = False
    """True if its work is users' code, which must not see the keys of providers: unless PALAVER_TOOL_POOL says
    otherwise each step has a child process, which can be ended. Others share one event loop."""

    @property
    def task(self) -> str:
        """The Celery task that does such a step."""
        return f"palaver.{self.name}_step"


MODEL: Final = StepKind("model", queue="model")
"""A call of the model."""
TOOL: Final = StepKind("tool", queue="tools", isolated=True)
"""One tool call."""
KINDS: Final = (MODEL, TOOL)
"""Every kind."""
KIND_OF: Final = {kind.queue: kind for kind in KINDS}
"""Each kind by its queue."""
QUEUES: Final = tuple(KIND_OF)
"""The queues of all kinds."""
StepKindName = Annotated[str, WithJsonSchema({"type": "string", "enum": [kind.name for kind in KINDS]})]
"""The name of a kind; one that a newer server has is taken, too."""
QueueName = Annotated[str, WithJsonSchema({"type": "string", "enum": [*QUEUES]})]
"""The name of a queue."""
WINDOW: Final = 8
"""Deliveries of a shard's queue that may be on their way at once. More of what is ready stays in the store, in an order
that can still change. Each that is claimed lets the next one go, so it is not the places that they have to fill, but
the time until a claim: 8 that take 3 ms are more than 2,000 a second (docs/adr/0101)."""
RANK: Final = 1 << 42
"""Ranks of a backlog are so far apart: below each stands a time in ms, which is smaller for 100 years to come."""
USUAL_PRIORITY: Final = 5
"""The priority of a run for which nobody asked: from 0, first among those of its tenant, to 9."""
RECOVERED: Final = ".recovered"
"""Stands behind a queue's name for the part that is consumed first: deliveries that were made before, or whose run has
begun."""
