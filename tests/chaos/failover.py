"""A primary, its lagging replica, and one address for whichever is the primary."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import redis

from features.stack.ports import HOST
from features.stack.redis_server import RedisServer
from tests.chaos.faulty_proxy import FaultyProxy
from tests.waiting import eventually

OPTIONS = {"repl-diskless-sync-delay": "0"}


class Pair:
    """Replication takes `lag` seconds there and as many back; clients use `url`."""

    def __init__(self, lag: float) -> None:
        self.primary, self.replica = RedisServer(options=OPTIONS), RedisServer(options=OPTIONS)
        self._lag = lag

    @property
    def url(self) -> str:
        """What PALAVER_REDIS_URL wants; stays the same."""
        return self._front.redis_url

    @contextlib.contextmanager
    def open(self) -> Iterator[Pair]:
        """Both servers run until the end of the block."""
        with self.primary, self.replica:
            front, between = FaultyProxy(self.primary.port), FaultyProxy(self.primary.port)
            between.latency = self._lag
            with front.open() as self._front, between.open() as self._between:
                self._follow()
                yield self

    def fail_over(self) -> None:
        """The primary dies with all that was on its way to the replica; that takes over, and gets a replica."""
        self._between.blackhole = True
        self.primary.kill()
        self._between.reset()
        self.primary, self.replica = self.replica, self.primary
        with self._admin(self.primary) as server:
            server.replicaof("NO", "ONE")
        self._front.upstream = self._between.upstream = self.primary.port
        self._front.reset()
        self._between.blackhole = False
        self.replica.start()
        self._follow()

    def synced(self) -> float:
        """A monotonic time before which all that was written is on the replica by now."""
        with self._admin(self.primary) as server:

            def look() -> float:
                begun = time.monotonic()
                server.set("synced", begun)
                return begun if server.wait(1, 1000) else 0.0

            return eventually(look)

    def _follow(self) -> None:
        with self._admin(self.replica) as server:
            server.replicaof(HOST, str(self._between.port))
            eventually(lambda: server.info("replication")["master_link_status"] == "up", within=20)

    @contextlib.contextmanager
    def _admin(self, server: RedisServer) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(server.url, socket_timeout=5) as connection:
            yield connection
