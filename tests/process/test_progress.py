"""What a probe sees of a worker: that it makes progress, and only that."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.broker import ON_RABBITMQ
from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.waiting import eventually

pytestmark = pytest.mark.process
APP = "tests.process.hanging_app"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "progress"


@pytest.fixture
def hang(tmp_path: Path) -> Path:
    return tmp_path / "hang"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens at."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def moves(file: Path) -> None:
    """Return once it was touched again."""
    before = file.stat().st_mtime_ns
    eventually(lambda: file.stat().st_mtime_ns > before, why="no progress")


@pytest.mark.parametrize(("role", "options"), [("worker", ()), ("tools", ()), ("worker", ("-Q", "model,tools"))])
def test_progress_is_told_from_when_it_is_ready(
    cluster: Cluster, role: str, options: tuple[str, ...], tmp_path: Path, file: Path, systemd: socket.socket
) -> None:
    file.touch()
    environment = {"PALAVER_PROGRESS_FILE": str(file), "NOTIFY_SOCKET": str(tmp_path / "notify")}
    with one_more(cluster, role, app=APP, options=options, HANG=str(tmp_path / "never"), **environment):
        eventually(file.exists, why="no progress")
        moves(file)
        assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"


@pytest.mark.slow
@pytest.mark.parametrize(("role", "thread"), [("worker", "pool"), ("worker", "consumer"), ("tools", "consumer")])
def test_a_thread_that_hangs_ends_it(cluster: Cluster, role: str, thread: str, file: Path, hang: Path) -> None:
    with one_more(cluster, role, app=APP, HANG=str(hang), PALAVER_PROGRESS_FILE=str(file)) as worker:
        eventually(file.exists, why="no progress")
        hang.write_text(thread)
        assert worker.running
        stands_still(file)


@pytest.mark.slow
def test_a_pool_that_begins_nothing_ends_it(cluster: Cluster, file: Path, hang: Path) -> None:
    """Though all its threads go round: deliveries wait, and there is room."""
    cluster.kill("tools")
    with one_more(cluster, "tools", app=APP, HANG=str(hang), PALAVER_PROGRESS_FILE=str(file)) as worker:
        assert cluster.ended(cluster.submit("tool-1", tools=["record"])).status == "completed"
        hang.write_text("children")
        eventually(lambda: "hears nobody" in worker.output)
        cluster.submit("tool-1", tools=["record"])
        stands_still(file)
        assert "nothing was taken for" in worker.output


def stands_still(file: Path) -> None:
    """Return once it was not touched for longer than a worker that makes progress would take."""
    looks: list[int] = []

    def still() -> bool:
        looks.append(file.stat().st_mtime_ns)
        return len(looks) > 150 and len(set(looks[-150:])) == 1

    eventually(still, why="it goes on telling of progress")


@pytest.mark.parametrize("role", ["worker", "tools"])
def test_an_outage_of_redis_does_not(cluster: Cluster, role: str, tmp_path: Path, file: Path) -> None:
    environment = {"PALAVER_PROGRESS_FILE": str(file), "HANG": str(tmp_path / "never")}
    with one_more(cluster, role, app=APP, **environment) as worker:
        eventually(file.exists, why="no progress")
        cluster.kill("redis")
        noticed = "ConnectionError" if ON_RABBITMQ else "onnection to broker lost"
        eventually(lambda: noticed in worker.output, why="it does not notice")
        for _ in range(5):
            moves(file)
        cluster.start("redis")
        worker.kill(signal.SIGTERM)
        eventually(lambda: not worker.running)
