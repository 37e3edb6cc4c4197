"""What a run needed is given back, however the run ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palaver.testing import eventually
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

SLACK = 8
"""Connections that a pool may have opened meanwhile and keeps."""


def test_runs_leave_no_open_files_behind(cluster: Cluster) -> None:
    processes = [*cluster.stack.pids("worker"), *cluster.stack.pids("api"), *cluster.stack.pids("tools")]
    some_of_each(cluster)
    before = [open_files(pid) for pid in processes]
    for _ in range(4):
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


def open_files(pid: int) -> int:
    """How many file descriptors a process has."""
    return len(os.listdir(Path(f"/proc/{pid}/fd")))
