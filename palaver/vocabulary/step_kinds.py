"""The kinds of steps. Queues, lists in Redis, Celery's tasks and routes, and statistics follow from this table.

The work of each kind is the function with its ``@step`` (``workers/steps/registry.py``), a Celery task. Beside the
queue of each kind there are those that tools name (``@tool(queue=…)``): their steps are tool steps, for workers that
take from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import WithJsonSchema

from palaver.late import dataclass

from .ids import call_of


@dataclass(frozen=True, slots=True, eq=False)
class StepKind:
    """A kind of step."""

    name: str
    queue: str
    """Its own: the workers of each kind are scaled apart."""
    asks_model: bool = False
    """True if it asks the agent's model, by the run's policy and the limits of its provider. Any other kind answers a
    call that a model made: its step is named after the call, and a failure is told to the model."""

    @property
    def task(self) -> str:
        """The Celery task that does such a step."""
        return f"palaver.{self.name}_step"


MODEL: Final = StepKind("model", queue="model", asks_model=True)
"""A call of the model."""
REMOTE: Final = StepKind("model", queue="model")
"""A call that others do: the run of another agent, or a server of the agent's own. It holds no process while it waits,
so it is a step of the workers of models, who deliver, count and show it as one of theirs."""
TOOL: Final = StepKind("tool", queue="tools")
"""One tool call."""
KINDS: Final = (MODEL, TOOL)
"""Every kind with a queue of its own."""
KIND_OF: Final = {kind.queue: kind for kind in KINDS}
"""Each kind by its queue."""
QUEUES: Final = tuple(KIND_OF)
"""The queues of all kinds."""
StepKindName = Annotated[str, WithJsonSchema({"type": "string", "enum": [kind.name for kind in KINDS]})]
"""The name of a kind; one that a newer server has is taken, too."""
OWN_QUEUE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
"""The names of queues that tools have of their own."""
QueueName = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{OWN_QUEUE.pattern}$"})]
"""The name of a queue: of a kind, or one that tools name."""
WINDOW: Final = 8
"""Deliveries of a shard's queue that may be on their way at once. More of what is ready stays in the store, in an order
that can still change. Each that is claimed lets the next one go, so it is not the places that they have to fill, but
the time until a claim: 8 that take 3 ms are more than 2,000 a second (docs/adr/0094)."""
AT_ONCE: Final = 3
"""The same of a queue of tools, whose places may be taken for minutes, as long as nothing waits there."""
RANK: Final = 1 << 42
"""Ranks of a backlog are so far apart: below each stands a time in ms, which is smaller for 100 years to come."""
USUAL_PRIORITY: Final = 5
"""The priority of a run that asks for none: from 0, first among those of its tenant, to 9."""
RECOVERED: Final = ".recovered"
"""Stands behind a queue's name for the part that is consumed first: deliveries that were made before, or whose run has
begun."""
OF_TOOLS: Final = f"{TOOL.queue}."
"""Stands, in the broker, in front of the name of a queue that tools have of their own: so a client that may use the
queues of tools may use it, and it is not another program's."""
LACKED: Final = "queue:"
"""Stands in front of a queue's name where that is what a step waits for: a worker that takes from it."""
_TAKEN: Final = frozenset({*QUEUES, RECOVERED.strip(".")})


def kind_of(queue: str) -> StepKind:
    """The kind of the workers that take from a queue: one that is not of a kind is of tools."""
    return KIND_OF.get(queue, TOOL)


def kind_of_step(queue: str, step: str) -> StepKind:
    """The kind of the step of this name in a queue."""
    kind = kind_of(queue)
    return REMOTE if kind.asks_model and call_of(step) is not None else kind


def broker_queue(queue: str) -> str:
    """The broker's name of a queue."""
    return queue if queue in KIND_OF else f"{OF_TOOLS}{queue}"


def queue_in_broker(name: str) -> str | None:
    """The queue that has this name in the broker, or this one with `RECOVERED` behind it; None if it is none."""
    queue = name.removesuffix(RECOVERED)
    if queue in KIND_OF:
        return queue
    own = queue.removeprefix(OF_TOOLS)
    return own if own != queue and is_own_queue(own) else None


def is_own_queue(name: str) -> bool:
    """Tell whether tools may name a queue so: it is not the queue of a kind, either."""
    return OWN_QUEUE.fullmatch(name) is not None and name not in _TAKEN


def own_queues(queues: Iterable[str]) -> tuple[str, ...]:
    """Return those of the queues that are not of a kind, each once, in order."""
    return tuple(dict.fromkeys(queue for queue in queues if queue not in KIND_OF))
