"""The dashboard and the alerts on a real Prometheus, which saw a load, a cool-down and a kill of the model worker."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import httpx
import pytest

from deploy.check.kit import Kit
from deploy.check.monitoring import ask, rules
from deploy.grafana.panels import AS_WORKERS_SEE, queries
from features.stack.child import ChildCommand
from features.stack.ports import free_port
from tests.process.cluster import Cluster, stream
from tests.process.one_more import one_more
from tests.process.prometheus import PROGRAM, Prometheus
from tests.waiting import PATIENCE, eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    pytest.mark.skipif(PROGRAM is None, reason="NOT CHECKED: no prometheus; apt-get install prometheus"),
]

FIRE: Final = {
    ("PalaverProviderCools", "limited"),
    ("PalaverNoWorkers", "model"),
    ("PalaverNothingRuns", "model"),
    ("PalaverProviderRefuses", "authentication"),
}


@pytest.fixture
def workers(cluster: Cluster) -> Iterator[Mapping[str, ChildCommand]]:
    """One of each kind, in place of the cluster's, that answers with its own metrics."""
    ports = {role: str(free_port()) for role in ("worker", "tools")}
    for role in ports:
        cluster.kill(role)
    with ExitStack() as running:
        yield {
            role: running.enter_context(one_more(cluster, role, PALAVER_METRICS_PORT=port))
            for role, port in ports.items()
        }


@pytest.fixture
def prometheus(cluster: Cluster, workers: Mapping[str, ChildCommand], tmp_path: Path) -> Iterator[Prometheus]:
    urls = [f"http://127.0.0.1:{child.environment['PALAVER_METRICS_PORT']}" for child in workers.values()]
    with Prometheus(tmp_path / "prometheus", Kit().alerts, cluster.stack.url, *urls) as running:
        eventually(lambda: running.series("palaver_build_info"))
        yield running


def test_every_panel_has_data_and_every_alert_is_evaluated(
    cluster: Cluster, prometheus: Prometheus, workers: Mapping[str, ChildCommand]
) -> None:
    with cluster.redis() as server:
        server.config_set("maxmemory", "1gb")
    try:
        # What is counted for the first time is no increase: there has to be something before.
        cluster.ended(cluster.submit("tool-1", tools=["record"]))
        eventually(lambda: prometheus.series("gen_ai_client_token_usage_count"))
        waiting = _load(cluster)
        _have_data(prometheus, queries(AS_WORKERS_SEE))
        workers["worker"].kill(signal.SIGKILL)
        waiting.append(cluster.submit("echo"))
        with suppress(AssertionError):
            eventually(lambda: prometheus.fired() >= FIRE, every=1)
        assert prometheus.fired() >= FIRE
        cluster.start("worker")
        for run_id in waiting:
            cluster.cancel(run_id)
        _have_data(prometheus, queries())
        assert prometheus.rules() == {rule["alert"]: ("ok", "") for rule in rules(Kit())}
    finally:
        with cluster.redis() as server:
            server.config_set("maxmemory", "0")


def _load(cluster: Cluster) -> list[str]:
    """Something of everything that is counted; these runs have not ended."""
    cool = cluster.submit("limited/429-1-60+echo")
    pending = cluster.submit("tool-1", tools=["send"])
    narrow = [cluster.submit("narrow/hang") for _ in range(3)]
    ended = [
        *(cluster.submit("tool-3", tools=["record"]) for _ in range(5)),
        cluster.submit("priced/tool-2", tools=["calculator"]),
        cluster.submit("500-1+echo"),
        cluster.submit("401"),
    ]
    cancelled = cluster.submit("hang")
    cluster.saw(cancelled, "step.started")
    cluster.cancel(cancelled)
    assert cluster.http.get("/v1/runs", params={"cursor": "x" * 20_000}).status_code == 414
    for run_id in (*ended, cancelled):
        cluster.ended(run_id)
    lost = cluster.submit("say-200+rate-20")
    watching = threading.Thread(target=lambda: list(stream(cluster.http, f"/v1/runs/{lost}/events")), daemon=True)
    watching.start()
    cluster.saw(lost, "message.delta")
    cluster.pending(pending)
    return [cool, pending, lost, *narrow]


def _have_data(prometheus: Prometheus, panels: Mapping[str, str]) -> None:
    """Each of these queries is answered. What comes last is there within some seconds: an API answers with what is up
    to five seconds old."""
    empty = dict(panels)

    def look() -> bool:
        for name, query in [*empty.items()]:
            if prometheus.series(ask(query, "15s")):
                del empty[name]
        return not empty

    with suppress(AssertionError):
        eventually(look, every=1)
    assert empty == {}


def test_what_is_scraped_is_as_prometheus_wants_it(cluster: Cluster) -> None:
    exposed = httpx.get(f"{cluster.stack.url}/metrics", trust_env=False, timeout=PATIENCE)
    promtool = shutil.which("promtool")
    assert promtool
    done = subprocess.run(
        [promtool, "check", "metrics"], input=exposed.text, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")
