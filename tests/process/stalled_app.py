"""The Celery app of workers that SIGUSR2 stalls: they stay connected, and nobody reads what the broker sends."""

from __future__ import annotations

import signal
import threading
from typing import Any

from celery.signals import worker_ready

from workers.app import app

__all__ = ["app"]


@worker_ready.connect
def _can_be_stalled(sender: Any, **_: Any) -> None:
    def stall(*_: Any) -> None:
        hub, cycle = sender.hub, getattr(sender.connection.transport, "cycle", None)
        if cycle is None:
            # RabbitMQ has one connection for everything.
            hub.remove_reader(sender.connection.connection.sock)
        else:
            for each in tuple(hub.on_tick):
                if "register_with_event_loop" in each.__qualname__:
                    hub.on_tick.discard(each)
            for fd in tuple(cycle.fds):
                hub.remove_reader(fd)
            # kombu's own look at a BRPOP that is not answered.
            cycle._brpop_health_tref.cancel()
        print("reads no more", flush=True)

    # Not in the middle of a tick, whose next function would listen again. From a thread: the handler interrupts the
    # loop's own, which may have the lock that the hub takes here.
    signal.signal(signal.SIGUSR2, lambda *_: threading.Thread(target=sender.hub.call_soon, args=(stall,)).start())
