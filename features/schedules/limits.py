"""Limits of schedules. Each group stands behind a limit of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.limits import KIB, Limit, limit_rows

LIMITS: Final[Mapping[str, Sequence[Limit]]] = MappingProxyType(
    {
        "runs_below": limit_rows(
            "Agents",
            ("schedules", "schedules of a tenant", 500, "schedules", "409 `schedules_full`"),
            ("schedule_bytes", "run of a schedule, as JSON", 256 * KIB, "bytes", "422 `validation_error`"),
            ("schedule_rate", "ticks of a schedule in a minute", 6, "ticks", "422 `validation_error`"),
            ("schedule_ticks", "past ticks that a schedule shows", 50, "ticks", "the oldest go"),
        ),
    }
)
