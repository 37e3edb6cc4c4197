"""The numbers of docs/adr/0002-asyncio-pool.md: steps that wait, on the asyncio pool and on Celery's threads.

    python -m bench.pool_compare [steps] [in flight] [seconds]

With `threads`, each task blocks its thread on a coroutine of one shared loop: the alternative that needs only
Celery's public API. CPU is user and system time of the worker between its first and its last step.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.signals import worker_init

from features.stack.child import dying_with_parent
from features.stack.redis_server import RedisServer
from tests.waiting import eventually
from workers.broker.pool import TaskPool
from workers.broker.transport import broker_settings

QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"]

app = Celery("compare", set_as_current=False)
app.conf.update(
    broker_settings(os.environ.get("COMPARE_BROKER", "redis://127.0.0.1:1/0")),
    task_acks_late=True,
    task_ignore_result=True,
    task_default_queue="model",
    worker_prefetch_multiplier=1,
)
_done = 0
_loop = asyncio.new_event_loop()


@worker_init.connect  # type: ignore[untyped-decorator]
def _choose_pool(sender: Any, **_: Any) -> None:
    if sender.pool_cls is PreforkPool:
        sender.pool_cls = TaskPool
    else:
        threading.Thread(target=_loop.run_forever, daemon=True).start()


async def _wait(seconds: float) -> None:
    """A step: nothing but the wait for a model."""
    await asyncio.sleep(seconds)
    _count()


def _count() -> None:
    global _done
    _done += 1
    Path(os.environ["COMPARE_DONE"]).write_text(str(_done))


@app.task(name="on_loop")  # type: ignore[untyped-decorator]
async def on_loop(seconds: float) -> None:
    await _wait(seconds)


@app.task(name="in_thread")  # type: ignore[untyped-decorator]
def in_thread(seconds: float) -> None:
    asyncio.run_coroutine_threadsafe(_wait(seconds), _loop).result()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def measure(task: str, pool: list[str], steps: int, in_flight: int, seconds: float) -> str:
    """Run `steps` on a fresh server and a fresh worker; one line of results."""
    with RedisServer() as server:
        os.environ["COMPARE_BROKER"] = server.url
        done = server.data_dir / "done"
        os.environ["COMPARE_DONE"] = str(done)
        producer = Celery("producer", set_as_current=False)
        producer.conf.update(broker_settings(server.url), task_default_queue="model")
        celery = [sys.executable, "-m", "celery", "-A", "bench.pool_compare", "worker", *QUIET]
        worker = subprocess.Popen(dying_with_parent([*celery, *pool, "-c", str(in_flight)]), stdout=subprocess.DEVNULL)
        try:
            producer.send_task(task, (0,))
            eventually(done.exists, within=30)
            begun_at, used = time.monotonic(), _cpu_seconds(worker.pid)
            for _ in range(steps):
                producer.send_task(task, (seconds,))
            eventually(lambda: done.read_text() == str(steps + 1), within=300, every=0.05)
            took, used = time.monotonic() - begun_at, _cpu_seconds(worker.pid) - used
            threads, peak = _status(worker.pid, "Threads"), _status(worker.pid, "VmHWM") / 1024
            cost = f"{used / steps * 1000:5.2f} ms/step {peak:6.0f} MB {threads:4d} threads"
            return f"{task:10} {cost} {took:5.1f} s"
        finally:
            worker.terminate()
            worker.wait()
            producer.close()


def main() -> None:
    """Print a line for each way, three times by turns."""
    steps, in_flight, seconds = sys.argv[1:] or ("1500", "300", "1")
    for _ in range(3):
        for task, pool in (("on_loop", ""), ("in_thread", "-Pthreads")):
            print(measure(task, pool.split(), int(steps), int(in_flight), float(seconds)), flush=True)


if __name__ == "__main__":
    main()
