"""The Celery app that test_pool.py runs on the asyncio pool; its tasks write what they do to POOL_RECORD."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from celery import Celery
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.exceptions import Ignore, Reject, Retry
from celery.signals import celeryd_after_setup, worker_init

from palaver.delivery.deliveries import QUEUES
from workers.broker.pool import TaskPool
from workers.broker.transport import AckTimeout, Amqp, broker_settings, consume_recovered_first

RECORD = Path(os.environ.get("POOL_RECORD", os.devnull))
LIFESPAN = os.environ.get("POOL_LIFESPAN", "")

app = Celery("pool", amqp=Amqp, set_as_current=False)
app.conf.update(
    broker_settings(os.environ.get("POOL_BROKER", "redis://127.0.0.1:1/0")),
    task_queues=tuple(QUEUES.values()),
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_soft_shutdown_timeout=float(os.environ.get("POOL_SOFT_SHUTDOWN", "0")),
    palaver_drain_grace=float(os.environ.get("POOL_GRACE", "20")),
)
app.draining = asyncio.Event()
celeryd_after_setup.connect(consume_recovered_first)
AckTimeout.interval = float(os.environ.get("POOL_LET_GO", AckTimeout.interval))
app.steps["consumer"].add(AckTimeout)


@worker_init.connect
def choose_pool(sender: Any, **_: Any) -> None:
    if "model" in sender.app.amqp.queues.consume_from and sender.pool_cls is PreforkPool:
        sender.pool_cls = TaskPool


def record(*words: object) -> None:
    with RECORD.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


async def opened(gate: str) -> None:
    """Return once the test has created the file `gate` beside the record."""
    while not RECORD.with_name(gate).exists():  # noqa: ASYNC110  # The other side is another process.
        await asyncio.sleep(0.01)


@asynccontextmanager
async def lifespan(pool: TaskPool) -> AsyncIterator[None]:
    if LIFESPAN == "fails":
        raise ConnectionError("no store")
    if LIFESPAN == "hangs":
        record("lifespan hangs")
        await asyncio.Event().wait()
    record("lifespan entered", threading.current_thread().name)
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(watch_draining())
        if LIFESPAN == "breaks":
            group.create_task(break_down())
        yield
        watch.cancel()
    record("lifespan exited")


async def watch_draining() -> None:
    await app.draining.wait()
    record("draining")


async def break_down() -> None:
    await opened("break")
    raise ConnectionError("lost the store")


app.lifespan = lifespan


@app.task(name="echo", bind=True)
async def echo(self: Any, value: str) -> str:
    await asyncio.sleep(0.05)
    record("echo", value, self.request.id)
    return value


@app.task(name="fail")
async def fail() -> None:
    raise ValueError("as told")


@app.task(name="retry")
async def retry() -> None:
    raise Retry("due later", exc=ConnectionError("refused"))


@app.task(name="ignore")
async def ignore() -> None:
    raise Ignore


@app.task(name="reject")
async def reject() -> None:
    raise Reject("not mine", requeue=False)


@app.task(name="leave")
async def leave() -> None:
    raise SystemExit(3)


@app.task(name="nap")
async def nap(seconds: float, name: str) -> None:
    record("begin", name)
    await asyncio.sleep(seconds)
    record("end", name)


@app.task(name="hold")
async def hold(name: str, gate: str = "gate") -> None:
    """Runs until the test creates the file `gate`; cancelled, it takes a moment to hand back."""
    record("begin", name)
    try:
        await opened(gate)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)
        record("handed back", name)
        raise
    record("end", name)


@app.task(name="slow_to_leave")
async def slow_to_leave(name: str) -> None:
    """Cancelled, it hands back once the test creates the file `left`."""
    record("begin", name)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        record("cancelled", name)
        await opened("left")
        record("handed back", name)
        raise


@app.task(name="swallow")
async def swallow() -> str:
    """Answers as if nothing had happened when it is cancelled."""
    record("begin swallow")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        record("swallowed")
    return "done"


@app.task(name="stubborn")
async def stubborn() -> None:
    """Cannot be cancelled."""
    record("begin stubborn")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            record("stayed")


@app.task(name="plain")
def plain(value: str) -> str:
    record("plain", value, threading.current_thread().name)
    return value


@app.task(name="stuck")
def stuck() -> None:
    """Blocks its thread for good."""
    record("begin stuck")
    threading.Event().wait()
