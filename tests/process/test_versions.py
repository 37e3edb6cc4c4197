"""Workers of two versions at once, and a rollback: what an older one may misread it leaves, and fails nothing."""

from __future__ import annotations

import time

import pytest

from palaver.store.redis import keys
from palaver.store.scripting.scripts import VERSION
from tests.process.cluster import LEASE, Cluster
from tests.process.one_more import one_more
from tests.waiting import eventually

pytestmark = pytest.mark.process

NEWER = "tests.process.newer_app"


@pytest.mark.chaos
def test_two_versions_share_the_work_and_a_rollback_fails_nothing(cluster: Cluster) -> None:
    with one_more(cluster, "worker", app=NEWER, name="newer") as newer, one_more(cluster, "tools", app=NEWER):
        runs = [cluster.submit("tool-3", tools=["record"]) for _ in range(10)]
        for run_id in runs:
            assert cluster.ended(run_id).status == "completed"
            assert len(cluster.model_calls(run_id)) == 4
            if newer_tries := [tried.endswith(f"/{newer.pid}") for tried in cluster.tries(run_id)]:
                assert newer_tries == sorted(newer_tries), "an older worker went on where a newer one had been"
        assert any(version(cluster, run_id) > VERSION for run_id in runs), "the newer workers did nothing"
        cluster.kill("worker")
        left = cluster.submit("say-40+rate-20")
        cluster.saw(left, "message.delta")
    # The rollback.
    cluster.start("worker")
    until = time.monotonic() + LEASE + 2
    eventually(lambda: time.monotonic() >= until)
    assert cluster.run(left).status == "running"
    assert cluster.http.post(f"/v1/runs/{left}/cancel").status_code == 503
    assert cluster.ended(cluster.submit("echo")).status == "completed", "it holds up others"
    with one_more(cluster, "worker", app=NEWER, name="newest"):
        assert cluster.ended(left).status == "completed"
        assert cluster.outcomes(left) == ["disconnected", "answered"]


def version(cluster: Cluster, run_id: str) -> int:
    with cluster.redis() as server:
        return int(server.hget(keys.conversation(cluster.run(run_id).conversation_id), "version") or 0)
