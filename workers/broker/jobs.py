"""The tasks of the asyncio pool: those that Celery hands to it, and those that follow another in its place.

One that follows has no message of its own, but to Celery it is a task like any other. It has an id, is received,
started and over, in the log and in the events that Flower shows, and can be found and revoked. Only its message is that
of the task before it, which is acknowledged behind the last one: Celery takes no other delivery for the place until
then. Of several that follow one the first has it, and the others have none that is still to be acknowledged.

It leans on what Celery 5.7 hands to a pool, methods of its `Request`, and on what its strategy does with one; held by
tests/process/test_in_place.py and tests/process/test_flower.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any
from weakref import ref

from celery.app import trace
from celery.utils.log import get_logger
from celery.worker import state

from palaver.steps.leases import Delivery
from palaver.steps.wire import headers_of, payload_of

from .tracer import Outcome, write

logger = get_logger("celery.worker.strategy")


@dataclass(slots=True, eq=False, weakref_slot=True)
class Job:
    """A task handed to the pool; Celery keeps a weak reference to it, as the handle that terminates it."""

    cancel: Callable[[Job], None]
    """The pool's."""
    target: Callable[..., Outcome]
    args: tuple[Any, ...]
    callback: Callable[[Outcome], None]
    accept_callback: Callable[[int, float], None]
    connection: int = 0
    """By which connection to the broker it came."""
    running: asyncio.Task[Outcome] | None = None
    terminated: bool = False
    following: list[Job] = field(default_factory=list)
    """The tasks that begin in its place when it has ended."""

    def terminate(self, signal: int | None = None) -> None:
        """Cancel the task (`revoke(terminate=True)`, cold shutdown); its outcome after that is not reported."""
        self.terminated = True
        self.cancel(self)


def follower(job: Job, delivery: Delivery) -> Job:
    """The task of a delivery of the same run, as the pool has it. In the loop's thread."""
    _, _, request, *_ = job.args
    headers = headers_of(delivery)
    payload = payload_of(delivery)
    args, kwargs, _ = payload
    facts = {**request, **headers, "correlation_id": delivery.task_id, "args": args, "kwargs": kwargs}
    arguments = (delivery.task_name, delivery.task_id, facts, payload)
    return replace(job, args=arguments, running=None, terminated=False, following=[])


def log_received(following: Job) -> None:
    """Write the line that Celery writes of a task that it receives. In the loop's thread, as the line of its end is:
    the hub's thread may come later than both."""
    if logger.isEnabledFor(logging.INFO):
        name, task_id, request, _ = following.args
        about = {"args": request["argsrepr"], "kwargs": request["kwargsrepr"]}
        write(logger, trace.LOG_RECEIVED, {"id": task_id, "name": name, "eta": None, **about})


def hand_over(job: Job, following: Job) -> Callable[[], None]:
    """Give what follows a task to Celery. Returns what tells of its beginning, to be called when the end of the first
    is told. In the hub's thread."""
    before: Any = job.callback.__self__  # type: ignore[attr-defined]
    _, _, headers, payload = following.args
    request = type(before)(
        before.message,
        on_ack=before.on_ack,
        on_reject=before.on_reject,
        app=before.app,
        hostname=before.hostname,
        eventer=before.eventer,
        connection_errors=before._connection_errors,
        headers=headers,
        body=payload,
        decoded=True,
    )
    request.acknowledged, before.acknowledged = before.acknowledged, True
    following.callback = request.on_success
    request._apply_result = ref(following)
    begun_at = monotonic()

    def begin() -> None:
        state.task_reserved(request)
        about = {"name": request.name, "args": request.argsrepr, "kwargs": request.kwargsrepr}
        request.send_event("task-received", **about, root_id=None, parent_id=None, retries=0, eta=None, expires=None)
        request.on_accepted(os.getpid(), begun_at)

    return begin
