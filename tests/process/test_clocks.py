"""Clocks that are an hour wrong, each process's in its own way, and jump: only Redis's counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest

from tests.process.checks import check
from tests.process.clocks import COMPILER, Clocks
from tests.process.cluster import LEASE, Cluster
from tests.process.inputs import soon
from tests.waiting import eventually

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(COMPILER is None, reason="NOT CHECKED: wrong clocks need a C compiler, `cc`"),
]

HOUR = 3600


class Wrong:
    """A cluster, and the clocks of its processes: one model worker ahead, one behind."""

    def __init__(self, cluster: Cluster, clocks: Clocks) -> None:
        self.cluster = cluster
        self._clocks = clocks

    def set(self, *, api: int, workers: tuple[int, int], tools: int) -> None:
        """From now on so many seconds ahead: the API, each of the two model workers, and whatever runs tools."""
        cluster = self.cluster
        ahead = dict.fromkeys([*cluster.stack.pids("tools"), *cluster.children_of("tools")], tools)
        ahead |= dict.fromkeys(cluster.stack.pids("api"), api)
        ahead |= dict(zip(cluster.stack.pids("worker"), workers, strict=True))
        for pid, seconds in ahead.items():
            self._clocks.move(pid, seconds)
        eventually(lambda: abs(self._ahead() - api) < 60, why="the API's clock is still right")

    def _ahead(self) -> float:
        """Seconds by which the date that the API sends is ahead; it looks at its clock every second."""
        sent = parsedate_to_datetime(self.cluster.http.get("/healthz").headers["date"])
        return (sent - datetime.now(UTC)).total_seconds()


@pytest.fixture(scope="module")
def wrong_clocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrong]:
    folder = tmp_path_factory.mktemp("clocks")
    clocks = Clocks(folder)
    with Cluster(folder, processes={"flower": 0, "worker": 2}, environment=clocks.environment) as cluster:
        cluster.all_children()
        yield Wrong(cluster, clocks)


@pytest.fixture
def wrong(wrong_clocks: Wrong) -> Iterator[Wrong]:
    cluster = wrong_clocks.cluster
    cluster.mark()
    yield wrong_clocks
    while len(cluster.stack.pids("worker")) < 2:
        cluster.start("worker")
    check(cluster)


@pytest.mark.parametrize("api", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_every_wait_is_as_long_as_it_should_be(wrong: Wrong, api: int) -> None:
    wrong.set(api=api, workers=(-api, api), tools=-api)
    cluster = wrong.cluster
    tools = [cluster.submit("tool-2", tools=["record"]) for _ in range(4)]
    # A provider for each, as a cool-down holds for all of its runs.
    seconds = cluster.submit("limited/429-1-2+echo")
    date = cluster.submit("caching/429date-1-2+echo")
    refused = cluster.submit("503-2+echo")
    begins_at = soon(3)
    begins = cluster.submit("echo", start_after=begins_at, deadline=soon(60))
    ends = cluster.submit("say-400+rate-20", deadline=soon(3))

    for run_id in (*tools, refused):
        assert cluster.ended(run_id).status == "completed"
    for run_id in (seconds, date):
        assert cluster.ended(run_id).status == "completed"
        first, second = cluster.model_calls(run_id)
        assert 2.0 <= second.at - first.at < 12
    assert cluster.ended(begins).status == "completed"
    (call,) = cluster.model_calls(begins)
    assert call.at >= datetime.fromisoformat(begins_at).timestamp()
    run = cluster.ended(ends)
    assert (run.status, run.stop_reason) == ("expired", "deadline")
    assert run.times.ended_at is not None
    assert 0 <= (run.times.ended_at - run.times.deadline).total_seconds() < 1


def test_clocks_that_jump_take_no_lease_away(wrong: Wrong) -> None:
    """Streams of several leases' length, while every clock jumps by two hours and back."""
    cluster = wrong.cluster
    runs = [cluster.submit(f"say-{round(3 * LEASE * 20)}+rate-20") for _ in range(4)]
    tool = cluster.submit("tool-1", '[[args {"seconds": 5}]]', tools=["record"])
    for run_id in runs:
        cluster.saw(run_id, "message.delta")
    side = HOUR
    until = time.monotonic() + 3 * LEASE
    while time.monotonic() < until:
        side = -side
        wrong.set(api=side, workers=(side, -side), tools=side)
    for run_id in (*runs, tool):
        assert cluster.ended(run_id).status == "completed"
    assert [len(cluster.model_calls(run_id)) for run_id in (*runs, tool)] == [1, 1, 1, 1, 2]


def test_a_worker_whose_clock_is_wrong_takes_over_what_another_one_lost(wrong: Wrong) -> None:
    cluster = wrong.cluster
    wrong.set(api=HOUR, workers=(-HOUR, -HOUR), tools=HOUR)
    run_id = cluster.submit("say-200+rate-30")
    cluster.saw(run_id, "message.delta")
    cluster.kill("worker", cluster.holder(run_id))
    killed_at = time.time()
    cluster.saw(run_id, "step.lost")
    assert cluster.ended(run_id).status == "completed"
    _, second = cluster.model_calls(run_id)
    assert second.at - killed_at < LEASE + 5


def test_what_has_passed_is_judged_by_the_store(wrong: Wrong) -> None:
    cluster = wrong.cluster
    wrong.set(api=HOUR, workers=(HOUR, -HOUR), tools=-HOUR)
    within = soon(60)
    run_id = cluster.submit("echo", deadline=within, start_by=within)
    assert cluster.ended(run_id).status == "completed"
    assert admitted(cluster, older_than=600) == 0
    wrong.set(api=-HOUR, workers=(HOUR, -HOUR), tools=-HOUR)
    eventually(lambda: admitted(cluster, older_than=0.001) > 0)
    answer = cluster.http.post("/v1/runs", json=cluster.body("echo", deadline=soon(-60)))
    assert (answer.status_code, answer.json()["errors"][0]["message"]) == (422, "is in the past")


def admitted(cluster: Cluster, *, older_than: float) -> int:
    """How many runs are said to be older than so many seconds."""
    body = {"action": "delete", "dry_run": True, "filter": {"older_than": older_than}}
    return int(cluster.http.post("/v1/runs/actions", json=body).json()["matched"])
