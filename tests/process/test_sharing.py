"""Workers come and go while runs are shared among them; each role is what runs here."""

from __future__ import annotations

from collections import Counter

import pytest

from palaver.schemas.models import Submission
from palaver.store import Store
from palaver.store.redis.reach import Reach, within
from tests.process.cluster import Cluster
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_workers_that_join_and_die_share_two_hundred_runs(cluster: Cluster) -> None:
    cluster.start("worker")
    runs = [cluster.submit("tool-3+rate-20", tools=["calculator", "record_idempotent"]) for _ in range(100)]
    cluster.start("worker")
    runs += [cluster.submit("tool-3+rate-20", tools=["calculator", "record_idempotent"]) for _ in range(100)]
    eventually(lambda: len(set(workers_of(cluster, runs[-40:]))) >= 3)
    cluster.kill("worker", 1)
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
    shares = workers_of(cluster, runs)
    assert len(shares) == 3
    assert min(shares.values()) > 10


def test_tools_workers_take_no_more_than_they_have_children_for(cluster: Cluster) -> None:
    """Sixteen calls of a second on two workers with four children each: two rounds, not three."""
    cluster.start("tools")
    text = '[[args {"seconds": 1.0}]]'
    runs = [cluster.submit("parallel-8", text, tools=["record_idempotent"]) for _ in range(2)]
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
    starts = [start for run_id in runs for start in cluster.tool_starts(run_id)]
    per_child = Counter(start["pid"] for start in starts)
    assert len(per_child) == 8
    assert max(per_child.values()) <= 3


@pytest.mark.skipif(ON_CLUSTER, reason="each shard has a window of its own")
def test_a_call_waits_for_one_call_of_a_tenant_that_has_thirty(cluster: Cluster) -> None:
    """On four places: at most one of the thirty begins on each before it, whatever all of them take."""
    text = '[[args {"seconds": 3.0}]]'
    many = [cluster.submit("parallel-10", text, tools=["record"]) for _ in range(3)]
    eventually(lambda: len([start for run_id in many for start in cluster.tool_starts(run_id)]) == 4)
    submission = Submission.model_validate(cluster.body("tool-1", tools=["record"]))

    async def submit(store: Store) -> str:
        with within(Reach("k7m2qx")):
            return (await store.runs.submit(submission)).run_id

    one = cluster.ask(submit)
    eventually(lambda: cluster.tool_starts(one))
    order = [line["call"][: len(one)] for line in cluster.tool_ledger() if line["event"] == "begin"]
    begun = [run_id for run_id in order if run_id in (*many, one)]
    assert begun.index(one) - 4 <= 4, "of the thirty, behind the four that had begun"
    for run_id in many:
        cluster.cancel(run_id)
    for run_id in many:
        assert cluster.ended(run_id).status == "cancelled"


def workers_of(cluster: Cluster, runs: list[str]) -> Counter[str]:
    """How many tries of model steps each worker made."""
    return Counter(worker for run_id in runs for worker in cluster.tries(run_id))
