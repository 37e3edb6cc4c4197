"""A stack whose store is a cluster; deliveries are on one Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from features.stack.redis_server import RedisServer
from tests.process.cluster import Cluster
from tests.redis_cluster import RedisCluster


@contextmanager
def on(masters: RedisCluster, folder: Path, **environment: str) -> Iterator[Cluster]:
    with RedisServer() as broker:
        places = {"PALAVER_REDIS_URL": masters.url, "PALAVER_BROKER_URL": broker.url, **environment}
        with Cluster(folder, redis_url=broker.url, environment=places) as cluster:
            yield cluster


def has_another_master(masters: RedisCluster, slot: int, lost: RedisServer) -> bool:
    return masters.master_of(slot) is not lost
