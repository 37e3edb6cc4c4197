"""The place of a run among those of its tenant that wait for a cap."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.schemas.models import Run
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.vocabulary.ids import shard_of, tenant_of
from palaver.vocabulary.lifecycle import StepState, WaitReason


async def say_places(redis: Connection, runs: Sequence[Run]) -> None:
    """Put on each of the runs that wait in a backlog how many steps of their tenant come before theirs, and one. It
    changes with each that ends, so no record says it. Raises what Redis raises."""
    held = [(run, step) for run in runs if (step := _held_step(run)) is not None]
    if not held:
        return
    pipeline = redis.pipeline(transaction=False)
    for run, (queue, name) in held:
        owner = keys.owner(tenant_of(run.id))
        pipeline.execute_command("ZRANK", keys.backlog(shard_of(run.id), queue, owner), f"{run.id}/{name}")
    for (run, _), rank in zip(held, await pipeline.execute(), strict=True):
        if rank is not None and run.waiting is not None:
            run.waiting = run.waiting.model_copy(update={"position": rank + 1})


def _held_step(run: Run) -> tuple[str, str] | None:
    """The queue and the name of the step that waits; None if none does for that."""
    if run.waiting is None or run.waiting.reason is not WaitReason.TENANT_LIMIT or run.waiting.until is not None:
        return None
    ready = next((each for each in run.current_steps if each.state is StepState.READY), None)
    return (ready.queue, ready.step) if ready is not None and ready.queue is not None else None
