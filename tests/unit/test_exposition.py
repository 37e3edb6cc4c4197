"""The text format, as Prometheus' own client library reads it."""

from __future__ import annotations

from decimal import Decimal

from prometheus_client.parser import text_string_to_metric_families

from palaver.telemetry.exposition import Times, expose
from palaver.telemetry.metrics import Metric

COUNTER = Metric("g", "palaver_things_total", "counter", 'A "thing"\nor \\ two.', "scripts", ("kind", "name"))
TIMES = Metric(
    "g", "palaver_things_seconds", "histogram", "Long.", "scripts", always=((),), per=1000, buckets=(50, 1000)
)
GAUGE = Metric("g", "palaver_now", "gauge", "Now.", "store", ("kind",), always=(("a",), ("b",)))


def _read(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_labels_and_help_are_escaped() -> None:
    values = ('a"b\\c\nd', "é {}")
    text = expose([COUNTER], {COUNTER.name: {values: Decimal("0.000000001")}})
    assert _read(text) == {(COUNTER.name, values): 1e-9}
    (family,) = text_string_to_metric_families(text)
    assert family.documentation == COUNTER.help


def test_a_histogram_adds_its_buckets_up() -> None:
    text = expose([TIMES], {TIMES.name: {(): Times((2, 3, 1), Decimal("12.345"))}})
    assert text.splitlines()[2:] == [
        'palaver_things_seconds_bucket{le="0.05"} 2',
        'palaver_things_seconds_bucket{le="1"} 5',
        'palaver_things_seconds_bucket{le="+Inf"} 6',
        "palaver_things_seconds_sum 12.345",
        "palaver_things_seconds_count 6",
    ]


def test_what_is_always_there_is_0_from_the_start() -> None:
    text = expose([GAUGE, TIMES], {GAUGE.name: {("b",): 2}, TIMES.name: {}})
    assert _read(text)["palaver_now", ("a",)] == 0
    assert _read(text)["palaver_now", ("b",)] == 2
    assert _read(text)["palaver_things_seconds_count", ()] == 0


def test_what_nobody_knows_is_not_there() -> None:
    assert expose([GAUGE, TIMES], {GAUGE.name: {}}).count("# HELP") == 1
