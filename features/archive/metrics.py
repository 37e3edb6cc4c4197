"""Metrics of the archive. They stand behind a metric of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.telemetry.metrics import Metric

METRICS: Final[Mapping[str, Sequence[Metric]]] = MappingProxyType(
    {
        "palaver_provider_in_flight": (
            Metric(
                "Archive",
                "palaver_archive_waiting",
                "gauge",
                "Conversations that the archive lacks something of, or is to forget.",
                "store",
                always=((),),
            ),
            Metric(
                "Archive",
                "palaver_archive_oldest_seconds",
                "gauge",
                "Time that what waits longest has waited for the archive.",
                "store",
                always=((),),
            ),
        ),
    }
)
