"""Processes of one installation that have other features: no run that a webhook is to hear of is ended without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from features.stack.ports import free_port
from palaver import Palaver
from palaver.config.exits import EX_CONFIG
from palaver.version import __version__
from tests.process.cluster import Cluster
from tests.process.one_more import another, one_more
from tests.process.webhook_receivers import Receivers
from tests.unit.api_world import SECRET_KEY
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

WITHOUT = {"PALAVER_FEATURES": "-webhooks"}
LEFT = "for a worker with the feature webhooks"
LACKED = f"this installation has the feature webhooks ({__version__}), and this process lacks it"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, heard: Receivers) -> Iterator[Cluster]:
    environment = {"PALAVER_SECRET_KEY": SECRET_KEY, "PALAVER_WEBHOOK_HOSTS": f"127.0.0.1:{heard.port}"}
    with Cluster(tmp_path_factory.mktemp("features"), environment=environment) as made:
        with Palaver(made.stack.url) as client:
            client.create_webhook(heard.url("ok"))
        yield made


@pytest.fixture
def cluster(whole: Cluster) -> Cluster:
    """What an installation with all features is, whatever the test before it took away."""
    whole.heal()
    whole.mark()
    return whole


def told(heard: Receivers) -> set[str]:
    return {body.partition(b'"run_id":"')[2].partition(b'"')[0].decode() for _, body, _ in heard.events("ok")}


def test_none_is_missed_while_workers_with_and_without_it_come_and_go(cluster: Cluster, heard: Receivers) -> None:
    with one_more(cluster, "worker", **WITHOUT) as lacking:
        eventually(lambda: LACKED in lacking.output)
        runs = [cluster.submit("tool-2", tools=["calculator"]) for _ in range(10)]
        for _ in range(2):
            cluster.kill("worker")
            runs += [cluster.submit("tool-2", tools=["calculator"]) for _ in range(5)]
            eventually(lambda: LEFT in lacking.output)
            cluster.start("worker")
        for run_id in runs:
            assert cluster.ended(run_id).status == "completed"
        eventually(lambda: told(heard) >= {*runs}, why="a webhook was missed")


def test_an_api_without_it_does_not_start(cluster: Cluster) -> None:
    api = another(cluster, "api", "lacking", **WITHOUT, PALAVER_API_PORT=str(free_port()))
    api.start()
    eventually(lambda: not api.running)
    assert LACKED in api.output


def test_the_set_shrinks_once_it_is_said_to(cluster: Cluster, heard: Receivers) -> None:
    """Workers with it end, those without it leave its runs alone until it is dropped; then it hears of nothing."""
    cluster.kill("worker")
    with one_more(cluster, "worker", **WITHOUT) as lacking:
        run_id = cluster.submit("echo")
        eventually(lambda: LEFT in lacking.output)
        assert cluster.run(run_id).status in ("queued", "running")
        environment = {**os.environ, **lacking.environment}
        refused = drop({**environment, "PALAVER_FEATURES": ""})
        assert refused.returncode == EX_CONFIG
        assert "webhooks is here: take it out of all processes first" in refused.stderr
        assert drop(environment).stdout == "webhooks is dropped. Runs that go on without it: 1.\n"
        assert cluster.ended(run_id).status == "completed"
        assert run_id not in told(heard)


def drop(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "palaver.cli", "features", "drop", "webhooks"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
