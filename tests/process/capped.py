"""A Palaver whose default tenant has caps that are never reached: what calls may cost is reserved all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from palaver.schemas.tenants import CapsChange
from tests.process.cluster import Cluster

_CAPS = CapsChange(usd_per_day=1_000_000, usd_per_month=1_000_000, requests_per_minute=1_000_000)
_NONE = CapsChange(usd_per_day=None, usd_per_month=None, requests_per_minute=None)


@contextmanager
def capped(cluster: Cluster) -> Iterator[None]:
    """While it has. That nothing is reserved for good is looked at behind every test (checks.py)."""
    cluster.ask(lambda store: store.caps.change("", _CAPS))
    try:
        yield
    finally:
        cluster.ask(lambda store: store.caps.change("", _NONE))
    with cluster.redis() as server:
        meters = cluster.of_the_store("meters")
        assert any(server.hexists(key, "reserved") for key in meters), "nothing was reserved"
