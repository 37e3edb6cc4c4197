"""Celery alone: each model call with its tool is a task, which puts the next one in its place.

The tasks are acknowledged late, so that what a dead worker had in its hands is not lost for good: Redis gives it to
another when the visibility timeout is over. Only the last task of a run stores a result, under the run's id: a worker
that sends a task whose result is kept subscribes to it, which costs a millisecond.
"""

from __future__ import annotations

import os

from celery import Celery, states

from bench.peers.apps import agent

app = Celery("bench")
app.conf.update(
    broker_url=os.environ["BENCH_REDIS_URL"],
    result_backend=os.environ["BENCH_REDIS_URL"],
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
)
client = agent.blocking_client()


@app.task(name="bench.step")  # type: ignore[untyped-decorator]
def step(job: agent.Job, messages: list[agent.Message]) -> None:
    """Ask the model, and go on in another task, or end with its answer."""
    said = agent.ask_blocking(client, job, messages)
    calls = said.get("tool_calls")
    if calls:
        step.apply_async((job, [*messages, said, *map(agent.use, calls)]))
    else:
        app.backend.store_result(job["run"], said["content"], states.SUCCESS)
