"""What a run needed is given back, however the run ended."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster
from tests.process.leaks import Crowd, brief, leave_nothing, open_files
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

SLACK = 8
"""Connections that a pool may have opened meanwhile and keeps."""


def test_runs_leave_no_open_files_behind(cluster: Cluster) -> None:
    processes = [*cluster.stack.pids("worker"), *cluster.stack.pids("api"), *cluster.stack.pids("tools")]
    some_of_each(cluster)
    before = [open_files(pid) for pid in processes]
    # One file for each run of a kind would be ten.
    for _ in range(2):
        some_of_each(cluster)
    eventually(
        lambda: all(open_files(pid) <= was + SLACK for pid, was in zip(processes, before, strict=True)),
        why=f"open files of worker, API and tools worker, at first {before}",
    )


def some_of_each(cluster: Cluster) -> None:
    """Twenty-five runs that complete, fail, retry, break off, or are cancelled while they stream."""
    models = ("echo", "401", "500-1+echo", "say-30+rate-100+cut-1-5", "say-400+rate-20")
    runs = [cluster.submit(model) for model in models for _ in range(5)]
    for run_id in runs[-5:]:
        cluster.saw(run_id, "message.delta")
        cluster.cancel(run_id)
    for run_id in runs:
        cluster.ended(run_id)


def test_nothing_is_left_once_the_retention_is_over(tmp_path_factory: pytest.TempPathFactory) -> None:
    with brief(tmp_path_factory.mktemp("brief"), retention=6) as cluster:
        leave_nothing(cluster, Crowd(cluster, seed=1), warm_up=80, runs=120, within=60)
