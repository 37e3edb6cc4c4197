"""The Celery app, impatient, with a worker of which a thread hangs once the file HANG says which: pool or consumer; or
that does not hear its children any more."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from celery.signals import worker_ready

from tests.waiting import eventually
from workers.app import app
from workers.loops import progress

__all__ = ["app"]

progress._EVERY, progress._PATIENCE, progress._UNTAKEN = 0.2, 6.0, 4.0  # type: ignore[misc]


@worker_ready.connect
def _wait_for_word(sender: Any, **_: Any) -> None:
    threading.Thread(target=_hang, args=(sender,), daemon=True).start()


def _hang(consumer: Any) -> None:
    asked = Path(os.environ["HANG"])
    # A file is there a moment before what is written into it.
    thread = eventually(asked.read_text, within=600)
    if thread == "pool":
        consumer.pool.call_soon(lambda: time.sleep(600))
    elif thread == "children":
        # A child is heard from when it is up: one that is starting would be. There are no more than calls need; a call
        # whose end was not heard of yet is one of these.
        pool = consumer.pool._pool
        eventually(lambda: len(pool._fileno_to_outq) == len(pool._pool) > 0 and not pool._cache)
        consumer.hub.call_soon(_deafen, consumer)
    else:
        consumer.hub.call_soon(time.sleep, 600)


def _deafen(consumer: Any) -> None:
    for fd in tuple(consumer.pool._pool._fileno_to_outq):
        consumer.hub.remove_reader(fd)
    print("hears nobody", flush=True)
