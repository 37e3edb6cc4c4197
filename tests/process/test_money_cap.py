"""A cap in money: many runs at once, and the tenant spends no more than that and one call's output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from palaver.schemas.tenants import CapsChange
from palaver.vocabulary.lifecycle import RunStatus
from tests.process.cluster import Cluster
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import eventually

pytestmark = pytest.mark.process

RUNS, OUTPUT = 50, 0.05
"""What one answer of 20 tokens costs at the provider `dear`."""
SENT = 0.01
"""And what it is sent at most."""


def spent(cluster: Cluster) -> float:
    """What the default tenant has spent in all."""
    with cluster.redis() as server:
        ledgers = cluster.of_the_store("usage:*")
        return sum(int(server.hget(ledger, "spent") or 0) for ledger in ledgers) / 1e9


@contextmanager
def capped(cluster: Cluster, dollars: float) -> Iterator[None]:
    """While the default tenant may spend so much more."""
    cap = CapsChange(usd_per_month=round(spent(cluster) + dollars, 9))
    cluster.ask(lambda store: store.caps.change("", cap))
    try:
        yield
    finally:
        cluster.ask(lambda store: store.caps.change("", CapsChange(usd_per_month=None)))


@pytest.mark.skipif(ON_CLUSTER, reason="all shards share a cap of the default tenant")
def test_fifty_runs_at_once_spend_a_dollar_and_one_answer(cluster: Cluster) -> None:
    before = spent(cluster)
    with capped(cluster, 1.0):
        agent = {"max_output_tokens": 20}
        runs = [cluster.submit("dear/say-20+rate-40", agent=agent) for _ in range(RUNS)]

        def held() -> int:
            with cluster.redis() as server:
                return sum(int(server.zcard(key)) for key in cluster.of_the_store("held"))

        def ended() -> int:
            return sum(cluster.run(run_id).status.terminal for run_id in runs)

        def is_quiet() -> bool:
            """Nothing is under way, and nothing that waits may begin; an answer takes half a second."""
            allowed = ended() + held() == RUNS and cluster.ask(lambda store: store.caps.allowed())
            return allowed == [] and ended() + held() == RUNS

        eventually(is_quiet, every=0.2, why="the runs neither end nor wait")
        cost = spent(cluster) - before
        assert 1.0 - OUTPUT - 2 * SENT < cost <= 1.0 + OUTPUT
        waiting = [run for run in map(cluster.run, runs) if not run.status.terminal]
        assert len(waiting) == held() > RUNS / 2
        for run in waiting:
            assert run.waiting is not None
            assert (run.waiting.reason, run.waiting.code) == ("tenant_limit", "usd_per_month")
            assert run.waiting.until is not None
        # The model server has answered the others, and nobody else.
        asked = [call for call in cluster.model_calls() if call.run in runs]
        assert len(asked) == RUNS - len(waiting)
    # Without the cap they go on within seconds.
    for run_id in runs:
        assert cluster.ended(run_id).status is RunStatus.COMPLETED


def test_a_model_without_a_price_is_not_called_under_a_cap(cluster: Cluster) -> None:
    with capped(cluster, 1.0):
        run_id = cluster.submit("echo")
        run = cluster.ended(run_id)
    assert run.error is not None
    assert (run.status, run.error["class"], run.error["code"]) == ("failed", "invalid_request", "unknown_price")
    assert "fake/echo has no price, and the tenant has a cap in money" in run.error["message"]
    assert cluster.model_calls(run_id) == []
    assert cluster.ended(cluster.submit("echo")).status is RunStatus.COMPLETED
