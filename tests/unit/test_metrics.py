"""What is declared about metrics keeps the rules of Prometheus."""

from __future__ import annotations

import pytest

from palaver.telemetry.metrics import Metric, all_metrics

EVERY = pytest.mark.parametrize("metric", all_metrics().values(), ids=lambda each: each.name)
LABELS = {
    "status", "stop_reason", "error_class", "reason", "type", "kind", "outcome", "queue", "state", "provider", "model",
    "limit", "version", "cause",
}  # fmt: skip
"""Those whose values are few. Nothing has an id for a label."""


@EVERY
def test_a_name_says_its_type_and_its_unit(metric: Metric) -> None:
    assert metric.name.startswith(("palaver_", "gen_ai_client_"))
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert not metric.name.endswith(("_count", "_sum", "_bucket", "_milliseconds", "_ms"))
    assert metric.type != "histogram" or metric.name.endswith(("_seconds", "_token_usage"))
    assert bool(metric.buckets) == (metric.type == "histogram")
    assert metric.help.endswith(".")
    assert "\n" not in metric.help


@EVERY
def test_labels_are_few(metric: Metric) -> None:
    assert set(metric.labels) <= LABELS
    assert all(len(values) == len(metric.labels) for values in metric.always)
    assert len(set(metric.always)) == len(metric.always)


def test_no_two_share_a_name_in_scripts() -> None:
    by_scripts = [each for each in all_metrics().values() if each.source == "scripts"]
    assert len({each.series for each in by_scripts}) == len(by_scripts)
