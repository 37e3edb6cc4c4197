"""Celery alone: a worker with 200 threads, an API before it, and a Redis that keeps nothing on disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Final

from bench.peers.peer import WithRuns
from bench.rig import Rig
from features.stack.ports import HOST

_THREADS: Final = "200"
_APP: Final = "bench.peers.apps.celery_worker"


class CeleryThreads(WithRuns):
    """The `threads` pool, which is the one for I/O that needs no patches of the standard library."""

    name = "Celery"
    completed = "SUCCESS"
    killed = MappingProxyType({"model": ("worker",), "tool": ("worker",)})

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._redis = rig.start_redis(f"redis-{self._port}", {"appendonly": "no"})

    @property
    def about(self) -> str:
        return (
            f"Celery {version('celery')} alone, with Redis without an append-only file: one worker, "
            f"`-P threads -c {_THREADS}`; a task for each model call with its tool, which sends the next one, "
            "`acks_late`, prefetch 1. FastAPI submits and reads results. There is no log, no retry, no lease and no "
            "event: it is the floor, not a product."
        )

    @property
    def pids(self) -> Mapping[str, int]:
        return {"redis": self._redis.pid, **super().pids}

    async def begin(self) -> None:
        environment = {**self._rig.environment, **self.surroundings(BENCH_REDIS_URL=self._redis.url)}
        quiet = ("--without-gossip", "--without-mingle", "-l", "WARNING")
        worker = ("-m", "celery", "-A", _APP, "worker", "-P", "threads", "-c", _THREADS, *quiet)
        self.run_program("worker", (sys.executable, *worker), environment)
        api = ("-m", "uvicorn", "bench.peers.apps.celery_api:app", "--host", HOST, "--port", str(self._port))
        self.run_program("api", (sys.executable, *api, "--log-level", "warning", "--no-access-log"), environment)
