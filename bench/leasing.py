"""Runs and steps without a worker: what one asks of the store, and nothing else."""

from __future__ import annotations

from typing import Any, Final

from bench.asked import BenchError
from palaver.errors import ErrorClass, Failure
from palaver.schemas.models import AgentSpec, Submission, Usage
from palaver.steps.leases import Delivery, Lease
from palaver.steps.verdicts import GiveUp
from palaver.store import Store
from palaver.store.runs.runs import Submitted, taken_on
from palaver.store.scripting.idempotency import IdempotencyKey
from palaver.vocabulary.ids import new_conversation_id
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.step_kinds import queue_in_broker

USED: Final = Usage(input_tokens=700, output_tokens=40, model_calls=1, cost_usd=0.001)
"""By a model's answer."""
TOGETHER: Final = 200
"""Runs that are made at once."""
_AGENT: Final = AgentSpec(model="fake/echo", instructions="You are a careful assistant. " * 20, tools=("calculator",))


async def lease(store: Store, due: Delivery, known: int | None = 0, known_at: int = 0) -> Lease:
    """The lease on a step that had no lease before. ``known`` and ``known_at`` are those of the store's claim.

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


def a_run(**more: Any) -> Submission:
    """A submission like those of a product, with an agent of 600 bytes."""
    return Submission(agent=_AGENT, input="What is six times seven?", **more)


async def submit_many(store: Store, count: int, **more: Any) -> list[Submitted]:
    """So many runs, each in a conversation of its own, some hundreds in one go; ``more`` is of the submissions."""
    made: list[Submitted] = []
    body, shards = a_run(**more), len(store.rounds.shards)
    for start in range(0, count, TOGETHER):
        some = [
            await store.runs.to_submit(body, new_conversation_id(shards), "new", IdempotencyKey(), by=None)
            for _ in range(min(TOGETHER, count - start))
        ]
        replies = await store.scripts.run_all(some)
        made += [taken_on(submit, reply) for submit, reply in zip(some, replies, strict=True)]
    return made


async def failed(store: Store, count: int, tags: tuple[str, ...]) -> list[str]:
    """Runs that failed at their first call."""
    failed = GiveUp(Failure.of(ErrorClass.PROVIDER_ERROR), StopReason.ERROR)
    ids = []
    for submitted in await submit_many(store, count, tags=tags):
        (delivery,) = submitted.deliveries
        await store.steps.settle(await lease(store, delivery), failed)
        ids.append(submitted.run_id)
    return ids
