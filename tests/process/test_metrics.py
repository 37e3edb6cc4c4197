"""``GET /metrics`` of a real API, after real runs: what Prometheus' own checker says, and what the sums are."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from palaver.telemetry.metrics import all_metrics
from tests.checkers.sums import check_sums, counted, since
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

Series = dict[tuple[str, ...], float]
CANARY = "CANARY-77aa"


def _scrape(cluster: Cluster) -> tuple[str, dict[str, Series]]:
    answer = cluster.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return answer.text, found


def _finished(metrics: dict[str, Series]) -> Counter[str]:
    """How many runs have ended, by status."""
    found = Counter[str]()
    for (status, _, _), number in metrics["palaver_runs_finished_total"].items():
        found[status] += int(number)
    return found


def test_the_sums_are_those_of_the_runs(cluster: Cluster) -> None:
    cluster.forget_cool_downs()
    before = cluster.ask(counted)
    ended = _finished(_scrape(cluster)[1])
    tools = ["calculator", "record", "record_idempotent"]
    metadata = {"secret": CANARY}
    cluster.submit("say-5", CANARY, metadata=metadata)
    cluster.submit("tool-2+use-each", CANARY, tools=tools, metadata=metadata, agent={"instructions": CANARY})
    cluster.submit("priced/tool-2", CANARY, tools=tools)
    cluster.submit("429-1", CANARY)
    failed = cluster.submit("401", CANARY)
    cancelled = cluster.submit("say-500+rate-20", CANARY)
    eventually(lambda: cluster.run(cancelled).status == "running")
    cluster.http.post(f"/v1/runs/{cancelled}/cancel", json={}).raise_for_status()
    assert cluster.ended(failed).status == "failed"
    evidence = check(cluster)
    counts = since(before, cluster.ask(counted))
    check_sums(counts, evidence.histories)
    # By provider: models that come after the first so many have no series of their own, and others ran here before.
    assert sum(number for (provider, _), number in counts["palaver_cost_usd_total"].items() if provider == "priced") > 0
    assert sum(counts["palaver_unpriced_steps_total"].values()) > 0
    wanted = ended + Counter({"completed": 4, "failed": 1, "cancelled": 1})
    eventually(lambda: _finished(_scrape(cluster)[1]) == wanted)
    text, metrics = _scrape(cluster)
    assert "CANARY" not in text
    for run_id in cluster.submitted:
        assert run_id not in text
    with cluster.redis() as server:
        limited = bool(server.info("memory")["maxmemory"])
    unknown = {name for name in all_metrics() if name.startswith("palaver_store_memory") and name.endswith("_ratio")}
    unfollowed = set() if ON_CLUSTER else {"palaver_store_replication_lag_bytes"}
    told = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    of_api = {each.name for each in all_metrics().values() if each.source != "worker"}
    assert told == of_api - unfollowed - (set() if limited else unknown)
    assert metrics["palaver_workers"]["model", "working"] >= 1
    assert metrics["palaver_store_memory_bytes"][()] > 0


def test_promtool_finds_no_fault(cluster: Cluster) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(
            "PROMTOOL IS NOT HERE: nobody has checked the text of /metrics. It is in Debian's package prometheus"
        )
    cluster.ended(cluster.submit("tool-2+use-each", tools=["calculator"]))
    text, _ = _scrape(cluster)
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
