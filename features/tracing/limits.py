"""Limits of traces. Each group stands behind a limit of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.limits import KIB, MIB, Limit, limit_rows

LIMITS: Final[Mapping[str, Sequence[Limit]]] = MappingProxyType(
    {
        "api_keys_known": limit_rows(
            "Traces",
            ("spans", "attempts and runs whose spans wait to be sent, a shard", 50_000, "records", "the oldest go"),
            ("span_events", "events of a run in its trace", 128, "events", "the oldest go"),
            ("span_event_data", "data of an event in a trace", 4 * KIB, "bytes", "it is left out"),
            ("span_content", "an attribute of a span that is content", 64 * KIB, "characters", "cut"),
            ("span_batch", "records that are sent at once", 512, "records", "the rest in the next"),
            (
                "span_batch_content",
                "content in records that are sent at once, but for the last",
                MIB,
                "characters",
                "the rest in the next",
            ),
        ),
    }
)
