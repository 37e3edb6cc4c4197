"""The kinds of steps. Queues, lists in Redis, Celery's tasks and routes, and statistics follow from this table.

The work of each kind is the function with its ``@step`` (``workers/steps/registry.py``). Beside the queue of each kind
there are those that tools name (``@tool(queue=…)``): their steps are tool steps, for workers that take from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
OWN_QUEUE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
"""The names of queues that tools have of their own."""
QueueName = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{OWN_QUEUE.pattern}$"})]
"""The name of a queue: of a kind, or one that tools name."""
WINDOW: Final = 8
"""Deliveries of a shard's queue that may be on their way at once. More of what is ready stays in the store, in an order
that can still change. Each that is claimed lets the next one go, so it is not the places that they have to fill, but
the time until a claim: 8 that take 3 ms are more than 2,000 a second (docs/adr/0101)."""
AT_ONCE: Final = 3
"""The same of a queue of tools, whose places may be taken for minutes, as long as nothing waits there."""
RANK: Final = 1 << 42
"""Ranks of a backlog are so far apart: below each stands a time in ms, which is smaller for 100 years to come."""
USUAL_PRIORITY: Final = 5
"""The priority of a run for which nobody asked: from 0, first among those of its tenant, to 9."""
RECOVERED: Final = ".recovered"
"""Stands behind a queue's name for the part that is consumed first: deliveries that were made before, or whose run has
begun."""
OF_TOOLS: Final = f"{TOOL.queue}."
"""Stands, in the broker, in front of the name of a queue that tools have of their own: so whoever may use the queues of
tools may use it, and it is none of somebody else's."""
LACKED: Final = "queue:"
"""Stands in front of a queue's name where that is what a step waits for: a worker that takes from it."""
_TAKEN: Final = frozenset({*QUEUES, RECOVERED.strip(".")})


def kind_of(queue: str) -> StepKind:
    """The kind of the steps in a queue: one that is not of a kind is of tools."""
    return KIND_OF.get(queue, TOOL)


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
