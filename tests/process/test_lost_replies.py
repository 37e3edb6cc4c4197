"""Redis did it, but the answer was lost: every script and every publish bears being sent again, or not being sure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from features.stack.redis_server import RedisServer
from tests.chaos.faulty_proxy import FaultyProxy
from tests.chaos.seeds import seeded
from tests.process.checks import check
from tests.process.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultyProxy]:
    """A lossy way to a server of its own."""
    _, chance = seeded()
    with RedisServer() as server, FaultyProxy(server.port, chance).open() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def lossy_cluster(proxy: FaultyProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose workers and API reach Redis over that way."""
    with Cluster(tmp_path_factory.mktemp("lossy"), redis_url=proxy.redis_url) as cluster:
        yield cluster


def test_a_lost_answer_changes_nothing(proxy: FaultyProxy, lossy_cluster: Cluster) -> None:
    lose_answers(proxy, lossy_cluster, runs=40)


@pytest.mark.chaos
def test_hundreds_of_lost_answers_change_nothing(proxy: FaultyProxy, lossy_cluster: Cluster) -> None:
    for _ in range(10):
        lose_answers(proxy, lossy_cluster, runs=100)
    assert proxy.lost > 300


def lose_answers(proxy: FaultyProxy, cluster: Cluster, runs: int) -> None:
    """Lose one answer in a hundred while so many runs go; nobody died, so nothing may be in doubt."""
    for words in ("ConnectionError", "TimeoutError", "ConnectionResetError", "OperationalError", "BrokenPipeError"):
        cluster.expect_traceback(words)
    tools = ["calculator", "record", "record_idempotent"]
    submitted = [cluster.submit("tool-6+use-each", tools=tools) for _ in range(runs)]
    before = proxy.lost
    proxy.losing = 0.01
    try:
        for run_id in submitted:
            run = cluster.ended(run_id)
            assert run.status == "completed", run
            assert len(cluster.tool_starts(run_id, "record")) == 2
            assert len(cluster.model_calls(run_id)) == 7
    finally:
        proxy.losing = 0.0
    print(f"{proxy.lost - before} answers lost")
    check(cluster)
    cluster.mark_logs()
    cluster.submitted.clear()
