"""What a model worker holds does not grow with the runs that it has done, and its steps leave the collector nothing."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import orjson
import pytest

from tests.process.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.long]

BLOCK = 150
"""Runs: more than a pool of connections grows with."""
FEW = 50
"""Objects of a class that come and go: timers that were cancelled, what the last run has. An object that each run of a
kind leaves would be sixty more: so many runs of it lie between the two looks."""
MORE = 6 << 20
"""Bytes of RAM by which fragments may differ."""


def test_neither_objects_nor_memory_grow_with_runs_and_no_step_is_a_cycle(cluster: Cluster) -> None:
    here = cluster.run(cluster.submit("echo")).conversation_id
    some_of_each(cluster)
    kept, memory, garbage = look(cluster, here)
    some_of_each(cluster)
    some_of_each(cluster)
    now, memory_now, garbage_now = look(cluster, here)
    grown = {name: count - kept[name] for name, count in now.items() if count - kept[name] > FEW}
    assert grown == {}
    assert memory_now - memory <= MORE
    # Steps that are cycles are forty objects each. Others than steps, a closed connection, an answer to INFO, are few.
    assert garbage_now - garbage < 10 * BLOCK


def some_of_each(cluster: Cluster) -> None:
    """Runs that complete at once, with a tool, in pieces, and that fail."""
    models = ("echo", "tool-1", "say-10+rate-500", "401", "echo")
    for run_id in [cluster.submit(models[i % len(models)], tools=["calculator"]) for i in range(BLOCK)]:
        cluster.ended(run_id)


def look(cluster: Cluster, conversation: str) -> tuple[Counter[str], int, int]:
    """The engine's objects by class, bytes of RAM, and how many objects only the collector has freed so far."""
    run = cluster.ended(cluster.submit("tool-1", tools=["census"], conversation_id=conversation))
    names = Counter[str](orjson.loads(cluster.saw(run.id, "tool.finished").data["message"]["content"]))
    (worker,) = cluster.stack.pids("worker")
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
    garbage = names.pop("garbage")
    return names, pages * os.sysconf("SC_PAGE_SIZE"), garbage
