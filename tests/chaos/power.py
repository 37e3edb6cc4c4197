"""Power cuts: the server is killed, and its append-only file loses what a disk may not have had yet."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palaver.schemas.models import Run
from tests.process.cluster import Cluster
from tests.waiting import eventually

EVERYSEC = 1.0
"""Seconds of writes that `appendfsync everysec` may lose."""


class Power:
    """Cuts the power of the cluster's own Redis.

    A kill alone leaves what was written with the kernel. With `everysec` a random part of what was written in the last
    second goes, as a rule in the middle of a record; and what the server held back, as it does for up to two seconds
    where the disk is slow, is gone with the process. With `always` every write that was answered is on the
    disk, so that only one that was not answered yet can be torn: a part of a record is added.
    """

    def __init__(self, cluster: Cluster, chance: random.Random, policy: str) -> None:
        self._cluster = cluster
        self._chance = chance
        self._policy = policy
        self._sizes: deque[tuple[float, Path, int]] = deque()
        """Up to when all that was answered was in the file, and the file with its size then or later."""
        self._looking = threading.Lock()
        self.lost_bytes = 0
        self._lost: list[tuple[float, float]] = []

    def may_be_lost(self, at: float) -> bool:
        """Whether what was done at this monotonic time was within what a cut may take."""
        return any(since <= at <= until for since, until in self._lost)

    def spared(self, run: Run) -> bool:
        """Whether the run had come to its end before, or began after, whatever cuts may have taken."""
        ahead = time.time() - time.monotonic()
        begun = run.times.created_at.timestamp() - ahead
        ended = run.times.ended_at.timestamp() - ahead if run.times.ended_at else math.inf
        return all(ended < since or begun > until for since, until in self._lost)

    @contextmanager
    def on(self) -> Iterator[Power]:
        """Watch the file grow until the end of the block; then Redis is as it was."""
        with self._cluster.redis() as server:
            before = str(server.config_get("appendfsync")["appendfsync"])
        self._apply()
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.02):
                with self._looking:
                    self._note()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield self
        finally:
            ended.set()
            watching.join()
            with self._cluster.redis() as server:
                server.config_set("appendfsync", before)

    def cut(self, *, whole_second: bool = False) -> float:
        """Kill, lose, and start again; `whole_second`: as much as may be. The monotonic time since when something may
        be lost."""
        with self._looking:
            self._cluster.kill("redis")
            at, path = time.monotonic(), self._file()
            if self._policy == "always":
                with path.open("ab") as file:
                    file.write(b"*3\r\n$3\r\nSET\r\n$8\r\nnev"[: self._chance.randint(1, 22)])
                self._lost.append((at, at))
            else:
                size = path.stat().st_size
                old = [(t, length) for t, name, length in self._sizes if name == path and t <= at - EVERYSEC]
                since, floor = old[-1] if old else next((t, n) for t, name, n in self._sizes if name == path)
                kept = floor if whole_second else self._chance.randint(floor, size)
                os.truncate(path, kept)
                self.lost_bytes += size - kept
                self._lost.append((since, at))
            self._sizes.clear()
            self._cluster.start("redis")
            self._apply()
            return self._lost[-1][0]

    def _apply(self) -> None:
        with self._cluster.redis() as server:
            server.config_set("appendfsync", self._policy)
        eventually(self._note, why="the server always holds writes back")

    def _note(self) -> bool:
        """Note how long the file is, and return True, if it has all that was answered."""
        now, path = time.monotonic(), self._file()
        with self._cluster.redis() as server:
            if server.info("persistence")["aof_buffer_length"]:
                return False
        self._sizes.append((now, path, path.stat().st_size))
        while len(self._sizes) > 1 and self._sizes[1][0] < now - EVERYSEC:
            self._sizes.popleft()
        return True

    def _file(self) -> Path:
        """The newest part of the append-only file."""
        parts = (self._cluster.stack.data_dir / "redis").glob("appendonlydir/*.incr.aof")
        return max(parts, key=lambda path: int(path.name.split(".")[-3]))
