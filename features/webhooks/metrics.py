"""Metrics of webhooks. They stand behind a metric of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, get_args

from palaver.telemetry.metrics import Metric, one_label
from palaver.vocabulary.webhooks import AttemptResult, WebhookCondition

METRICS: Final[Mapping[str, Sequence[Metric]]] = MappingProxyType(
    {
        "palaver_provider_in_flight": (
            Metric(
                "Webhooks",
                "palaver_webhook_attempts_total",
                "counter",
                "Attempts to send an event to a webhook, by what became of them.",
                "store",
                ("outcome",),
                always=one_label(*get_args(AttemptResult)),
            ),
            Metric(
                "Webhooks",
                "palaver_webhook_pending",
                "gauge",
                "Deliveries that have not ended.",
                "store",
                always=((),),
            ),
            Metric(
                "Webhooks",
                "palaver_webhook_oldest_seconds",
                "gauge",
                "For how long the event has waited whose turn it is, or that was not taken yet; 0 without one.",
                "store",
                always=((),),
            ),
            Metric(
                "Webhooks",
                "palaver_webhooks",
                "gauge",
                "Webhooks, of all tenants: the last attempt was no failure, it was one, or they are turned off.",
                "store",
                ("state",),
                always=one_label(*get_args(WebhookCondition)),
            ),
            Metric(
                "Webhooks",
                "palaver_webhook_deliveries_dropped_total",
                "counter",
                "Deliveries that were not tried because too many of their webhook waited.",
                "store",
                always=((),),
            ),
            Metric(
                "Webhooks",
                "palaver_webhook_events_lost_total",
                "counter",
                "Events that were not written because those before were not taken.",
                "scripts",
                always=((),),
            ),
        ),
    }
)
