"""Thousands of runs of every kind, exported as they end: afterwards nothing of them is left but the export."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.cluster import Cluster
from tests.process.leaks import Crowd, brief, leave_nothing, resident
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

RETENTION = 120.0
"""Seconds: a run must be exported within."""


def test_thousands_of_runs_leave_nothing_behind(tmp_path_factory: pytest.TempPathFactory) -> None:
    seed, _ = seeded()
    count = scaled(1000)
    folder = tmp_path_factory.mktemp("brief")
    with brief(folder, RETENTION) as cluster, exporting(cluster, folder / "runs.jsonl") as exporter:
        crowd = Crowd(cluster, seed)
        exported = Ids(folder / "runs.jsonl")

        def wait_for_the_export() -> None:
            # It is no race: on a busy machine runs could be made faster than they are exported.
            eventually(lambda: set(crowd.submitted) - crowd.deleted <= exported.read(), within=RETENTION)

        leave_nothing(
            cluster,
            crowd,
            warm_up=max(100, count // 20),
            runs=count,
            within=3 * RETENTION,
            breathe=wait_for_the_export,
        )
        assert resident(exporter) < 150 * 2**20
    records = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    runs = Counter(each["run"]["id"] for each in records if each["kind"] == "run")
    assert set(runs.values()) == {1}
    assert set(crowd.submitted) - crowd.deleted <= set(runs)
    events = [each["event"] for each in records if each["kind"] == "event"]
    assert Counter(event["run_id"] for event in events if event["type"] == "run.finished") == runs
    record("leaks", seed=seed, counts={**crowd.made, "exported": len(runs)})


class Ids:
    """The ids of the runs in an export that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._found: set[str] = set()

    def read(self) -> set[str]:
        """Those that are there by now."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                each = json.loads(line)
                if each["kind"] == "run":
                    self._found.add(each["run"]["id"])
        return self._found


@contextmanager
def exporting(cluster: Cluster, path: Path) -> Iterator[int]:
    """`palaver export --follow` beside the runs; its process id."""
    command = [sys.executable, "-m", "palaver.cli", "export", "--all", "--follow", "--every", "5s"]
    child = subprocess.Popen([*command, "--to", str(path), "--url", cluster.stack.url], stderr=subprocess.PIPE)
    try:
        yield child.pid
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
        assert child.returncode == 0, said.decode()
    finally:
        child.kill()
        child.wait()
