"""Played in a copy of the tree to which a guest has added a kind of step, by test_third_kind.py.

    python -m tests.process.third_kind FOLDER

Prints what came of three runs, as JSON: one on an ordinary day, one whose delivery was lost, one that is cancelled.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from features.stack.plan import COMMANDS
from tests.process import warm
from tests.process.cluster import Cluster
from tests.waiting import eventually

LOOKUPS = [*COMMANDS["worker"], "-Q", "lookups", "-n", "lookups@%h"]
"""A worker of the third kind."""


def _queue(cluster: Cluster) -> dict[str, Any]:
    (queue,) = cluster.http.get("/v1/queues?queue=lookups").json()["data"]
    return dict(queue)


def _result(cluster: Cluster, run_id: str) -> str:
    (finished,) = (event for event in cluster.events(run_id) if event.type == "tool.finished")
    return str(finished.data["message"]["content"])


def main() -> None:
    """Play it."""
    folder = Path(sys.argv[1])
    folder.mkdir()
    with warm.starts(), Cluster(folder, commands={**COMMANDS, "lookups": LOOKUPS}) as cluster:
        queue = eventually(lambda: (found := _queue(cluster))["workers"] and found)
        assert queue is not None
        ordinary = cluster.submit("tool-1", tools=["record"])
        status = cluster.ended(ordinary).status
        found = {"status": status, "result": _result(cluster, ordinary), "workers": len(queue["workers"])}
        cluster.saw(ordinary, "step.started", worker=queue["workers"][0]["id"])

        cluster.kill("lookups")
        lost = cluster.submit("tool-1", tools=["record"])
        eventually(lambda: _queue(cluster)["ready"] == 1)
        with cluster.deliveries() as connection:
            connection.delete("lookups", "lookups.recovered")
        cluster.start("lookups")
        found["lost"] = cluster.ended(lost).status

        cluster.kill("lookups")
        cancelled = cluster.submit("tool-1", tools=["record"])
        eventually(lambda: _queue(cluster)["ready"] == 1)
        cluster.http.post(f"/v1/runs/{cancelled}/cancel")
        found["cancelled"] = cluster.ended(cancelled).status
        found["ready"] = _queue(cluster)["ready"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
