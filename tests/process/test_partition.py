"""A worker that alone is cut off from Redis stops what others take over; an outage for everybody stops nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.chaos.faulty_proxy import FaultyProxy
from tests.model_server import LedgerEntry
from tests.process.cluster import LEASE, Cluster
from tests.process.one_more import one_more
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import eventually

pytestmark = pytest.mark.process


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[FaultyProxy]:
    """One worker's way to Redis."""
    if ON_CLUSTER:
        pytest.skip("about the way to one server")
    cluster.expect_traceback("ConnectionError", "TimeoutError", "OperationalError")
    with FaultyProxy(cluster.stack.ports.redis).open() as proxy:
        yield proxy


def test_a_worker_that_is_cut_off_ends_its_model_call_with_its_lease(cluster: Cluster, proxy: FaultyProxy) -> None:
    """It cannot know whether it is the only one, so this is for who asked for it: PALAVER_OUTAGE=0."""
    cluster.kill("worker")
    with one_more(cluster, "worker", PALAVER_REDIS_URL=proxy.redis_url, PALAVER_OUTAGE="0") as cut_off:
        run_id = cluster.submit("say-160+rate-20")
        cluster.saw(run_id, "message.delta")
        proxy.blackhole = True
        cluster.start("worker")
        first = eventually(lambda: ended_calls(cluster, run_id))[0]
        assert first.outcome == "disconnected", "it went on when its lease was over"
        cluster.saw(run_id, "message.delta", attempt=2)
        proxy.heal()
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.model_calls(run_id)) == 2
        assert "stopping" in cut_off.output


def test_a_worker_that_is_cut_off_ends_its_tool_with_its_lease(cluster: Cluster, proxy: FaultyProxy) -> None:
    cluster.kill("tools")
    with one_more(cluster, "tools", PALAVER_REDIS_URL=proxy.redis_url, PALAVER_OUTAGE="0"):
        run_id = cluster.submit("tool-1", '[[args {"seconds": 4}]]', tools=["record_idempotent"])
        (start,) = eventually(lambda: cluster.tool_starts(run_id))
        proxy.blackhole = True
        cluster.start("tools")
        run = cluster.ended(run_id)
        assert run.status == "completed"
        _, again = cluster.tool_starts(run_id)
        assert again["at"] >= start["at"] + LEASE - 1
        ends = [line["pid"] for line in cluster.tool_ledger() if line["event"] == "end"]
        assert again["pid"] in ends
        assert start["pid"] not in ends, "it went on when its lease was over"


@pytest.mark.chaos
def test_what_a_cut_off_worker_brings_when_it_is_back_is_refused(cluster: Cluster, proxy: FaultyProxy) -> None:
    """By default a worker goes on: it takes its being cut off for an outage. Then it costs a model call, no more."""
    cluster.kill("worker")
    with one_more(cluster, "worker", PALAVER_REDIS_URL=proxy.redis_url) as cut_off:
        run_id = cluster.submit("say-120+rate-20")
        cluster.saw(run_id, "message.delta")
        cluster.start("worker")
        proxy.blackhole = True
        eventually(lambda: [call for call in ended_calls(cluster, run_id) if call.outcome == "answered"])
        proxy.heal()
        assert cluster.ended(run_id).status == "completed"
        assert cluster.outcomes(run_id) == ["answered", "answered"]
        eventually(lambda: "stale: another worker goes on" in cut_off.output)


def test_an_answer_that_came_during_an_outage_is_kept(cluster: Cluster) -> None:
    """The model finishes while Redis is away for longer than a lease: no second call."""
    runs = [cluster.submit("say-20+rate-20") for _ in range(4)]
    for run_id in runs:
        cluster.saw(run_id, "message.delta")
    redis = cluster.stack.kill("redis", 0, signal.SIGSTOP)
    try:
        until = time.monotonic() + LEASE + 1
        eventually(lambda: all(ended_calls(cluster, run_id) for run_id in runs))
        eventually(lambda: time.monotonic() >= until)
    finally:
        os.kill(redis, signal.SIGCONT)
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
        assert cluster.outcomes(run_id) == ["answered"]


def ended_calls(cluster: Cluster, run_id: str) -> list[LedgerEntry]:
    return [call for call in cluster.model_calls(run_id) if call.outcome != "open"]
