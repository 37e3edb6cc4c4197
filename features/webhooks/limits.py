"""Limits of webhooks. Each group stands behind a limit of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.limits import KIB, Limit, limit_rows

LIMITS: Final[Mapping[str, Sequence[Limit]]] = MappingProxyType(
    {
        "api_keys_known": limit_rows(
            "Webhooks",
            ("webhooks", "webhooks of a tenant", 10, "webhooks", "409 `webhooks_full`"),
            ("webhook_url", "`url` of a webhook", 2_000, "characters", "422 `validation_error`"),
            ("webhook_description", "`description` of a webhook", 500, "characters", "422 `validation_error`"),
            (
                "webhook_waiting",
                "deliveries of a webhook that are pending",
                10_000,
                "deliveries",
                "the newest fails at once",
            ),
            ("webhook_kept", "deliveries of a webhook that have ended", 1_000, "deliveries", "the oldest is forgotten"),
            ("webhook_days", "age of a delivery", 30, "days", "it is forgotten"),
            ("webhook_answer", "what is kept of a receiver's answer", KIB, "bytes", "cut: the rest is not read"),
            (
                "webhook_replay",
                "deliveries that one request replays",
                1_000,
                "deliveries",
                "the first are, and `more` says so",
            ),
            (
                "webhook_outbox",
                "events of a tenant that were not taken, in a shard",
                100_000,
                "events",
                "lost, and counted",
            ),
        ),
        "script_page_bytes": limit_rows(
            "Store",
            ("webhooks_measured", "webhooks that metrics look at", 1_000, "webhooks", "those that wait longest are"),
        ),
    }
)
