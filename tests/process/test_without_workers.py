"""A submit needs no worker: what is taken while none is there, or none ever was, ends once one comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from features.stack.plan import COMMANDS
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

RUNS = 20


@pytest.fixture(scope="module")
def deserted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A stack that never had a worker. A model worker will do one step at a time: with more, runs begin together."""
    processes = {"flower": 0, "worker": 0, "tools": 0}
    commands = {**COMMANDS, "worker": [*COMMANDS["worker"], "-c", "1"]}
    with Cluster(tmp_path_factory.mktemp("deserted"), processes=processes, commands=commands) as cluster:
        yield cluster


def _submitted(cluster: Cluster) -> list[str]:
    return [cluster.submit("fake/tool-5", f"number {n}", tools=["calculator"]) for n in range(RUNS)]


def _complete_in_order(cluster: Cluster, run_ids: list[str]) -> None:
    """Workers come, and then these runs complete."""
    cluster.start("tools")
    cluster.start("worker")
    runs = [cluster.ended(run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {"completed"}
    started = [run.times.started_at for run in runs if run.times.started_at is not None]
    assert len(started) == RUNS
    assert started == sorted(started)


def test_what_is_submitted_without_workers_completes_in_order_once_they_come(deserted: Cluster) -> None:
    run_ids = _submitted(deserted)
    for run_id in run_ids:
        waiting = deserted.run(run_id).waiting
        assert waiting is not None
        assert (waiting.reason, waiting.code) == ("no_worker", "provider:fake")
    _complete_in_order(deserted, run_ids)

    deserted.kill("worker")
    deserted.kill("tools")
    _complete_in_order(deserted, _submitted(deserted))
