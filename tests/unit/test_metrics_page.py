"""The page of metrics says what the code declares."""

from __future__ import annotations

from pathlib import Path

from palaver.telemetry.metrics import all_metrics
from palaver.vocabulary.limits import limit_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_it_tells_of_every_label() -> None:
    told = PAGE.read_text().partition("## Labels")[2].partition("\n## ")[0]
    assert {label for each in all_metrics().values() for label in each.labels if f"`{label}`" not in told} <= {
        "version"
    }
    assert f"{limit_of('metric_models')} models a shard" in told
