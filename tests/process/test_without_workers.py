"""A submit needs no worker: what is taken while none is there, or none ever was, ends once one comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from palaver.schemas.models import Run
from palaver.stack.plan import COMMANDS
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


def _in_order(runs: list[Run]) -> bool:
    started = [run.times.started_at for run in runs if run.times.started_at is not None]
    return len(started) == RUNS and started == sorted(started)


def test_what_is_submitted_without_workers_completes_in_order_once_they_come(deserted: Cluster) -> None:
    run_ids = [deserted.submit("fake/tool-5", f"number {n}", tools=["calculator"]) for n in range(RUNS)]
    for run_id in run_ids:
        waiting = deserted.run(run_id).waiting
        assert waiting is not None
        assert (waiting.reason, waiting.code) == ("no_worker", "provider:fake")
    deserted.start("tools")
    deserted.start("worker")
    runs = [deserted.ended(run_id, within=60) for run_id in run_ids]
    assert {run.status for run in runs} == {"completed"}
    assert _in_order(runs)

    deserted.kill("worker")
    deserted.kill("tools")
    later = [deserted.submit("fake/tool-5", f"number {n}", tools=["calculator"]) for n in range(RUNS)]
    deserted.start("tools")
    deserted.start("worker")
    runs = [deserted.ended(run_id, within=60) for run_id in later]
    assert {run.status for run in runs} == {"completed"}
    assert _in_order(runs)
