"""Steps without a worker: what one asks of the store, and nothing else."""

from __future__ import annotations

from typing import Final

from bench.asked import BenchError
from palaver.schemas.models import Usage
from palaver.steps.leases import Delivery, Lease
from palaver.store import Store
from palaver.vocabulary.step_kinds import queue_in_broker

USED: Final = Usage(input_tokens=700, output_tokens=40, model_calls=1, cost_usd=0.001)
"""By a model's answer."""


async def lease(store: Store, due: Delivery, known: int | None = 0, known_at: int = 0) -> Lease:
    """The lease on a step that nobody had before. ``known`` and ``known_at`` are those of the store's claim.

    Raises BenchError.
    """
    leased = await store.steps.claim(
        due.run_id,
        due.conversation_id,
        due.step,
        queues=(queue_in_broker(due.queue) or due.queue,),
        worker="bench",
        nonce="first",
        known=known,
        known_at=known_at,
    )
    if not isinstance(leased, Lease):
        raise BenchError(f"{due.step} of {due.run_id} could not be leased: {leased}")
    return leased
