"""Metrics of schedules. They stand behind a metric of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, get_args

from palaver.schemas.schedules import TickOutcome
from palaver.telemetry.metrics import Metric, one_label

METRICS: Final[Mapping[str, Sequence[Metric]]] = MappingProxyType(
    {
        "palaver_pending_actions_oldest_seconds": (
            Metric(
                "Runs",
                "palaver_schedule_ticks_total",
                "counter",
                "Ticks of schedules that are over, by what became of them.",
                "store",
                ("outcome",),
                always=one_label(*get_args(TickOutcome)),
            ),
        ),
    }
)
