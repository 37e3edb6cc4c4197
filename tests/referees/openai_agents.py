"""What programs of referees find at `/openai/v1`: agents on the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.process.cluster import Cluster


@contextmanager
def served(cluster: Cluster) -> Iterator[str]:
    """The address, where the agents `recorder` are, with a tool of the server, and `careful`, whose calls of it wait
    for an approval. What programs have left waiting is cancelled."""
    for name, require in (("recorder", "never"), ("careful", "always")):
        agent = {"model": "fake/tool-1", "tools": ["record"], "approvals": {"require": require}}
        assert cluster.http.put(f"/v1/agents/{name}", json=agent).status_code in (200, 201)
    try:
        yield f"{cluster.stack.url}/openai/v1"
    finally:
        cancel_waiting(cluster)


def cancel_waiting(cluster: Cluster) -> None:
    """End the runs that programs have left waiting."""
    while left := cluster.http.get("/v1/runs?status=requires_action&limit=100").json()["data"]:
        for run in left:
            cluster.http.post(f"/v1/runs/{run['id']}/cancel")
