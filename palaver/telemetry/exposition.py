"""Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final

from palaver.late import dataclass
from palaver.telemetry.metrics import Metric

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Times:
    """The value of a histogram: how many there are in each bucket and behind the last one, and their sum."""

    buckets: tuple[int, ...]
    sum: Decimal


Values = Mapping[tuple[str, ...], int | float | Decimal | Times]
"""A metric's values, by the values of its labels."""
Samples = Mapping[str, Values]
"""By the metric's name."""


def expose(metrics: Iterable[Metric], samples: Samples) -> str:
    """The text for those of ``metrics`` that there are samples of; series that are always there are 0 without one."""
    return "".join(
        line for metric in metrics if metric.name in samples for line in _metric(metric, samples[metric.name])
    )


def _metric(metric: Metric, values: Values) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escaped(metric.help)}\n"
    yield f"# TYPE {metric.name} {metric.type}\n"
    nothing = Times((0,) * (len(metric.buckets) + 1), Decimal(0)) if metric.buckets else 0
    for labels, value in {**dict.fromkeys(metric.always, nothing), **values}.items():
        named = [*zip(metric.labels, labels, strict=True)]
        if isinstance(value, Times):
            yield from _histogram(metric, named, value)
        else:
            yield f"{metric.name}{_labels(named)} {_number(value)}\n"


def _histogram(metric: Metric, named: list[tuple[str, str]], times: Times) -> Iterator[str]:
    edges = [*(_number(Decimal(edge) / metric.per) for edge in metric.buckets), "+Inf"]
    so_far = 0
    for edge, number in zip(edges, times.buckets, strict=True):
        so_far += number
        yield f"{metric.name}_bucket{_labels([*named, ('le', edge)])} {so_far}\n"
    yield f"{metric.name}_sum{_labels(named)} {_number(times.sum)}\n"
    yield f"{metric.name}_count{_labels(named)} {so_far}\n"


def _labels(named: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{name}="{_escaped(value, quoted=True)}"' for name, value in named)
    return f"{{{inner}}}" if inner else ""


def _escaped(text: str, *, quoted: bool = False) -> str:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return escaped.replace('"', r"\"") if quoted else escaped


def _number(value: float | Decimal) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
