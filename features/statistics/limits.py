"""Limits of statistics. Each group stands behind a limit of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.limits import Limit, limit_rows

LIMITS: Final[Mapping[str, Sequence[Limit]]] = MappingProxyType(
    {
        "usage_rows": limit_rows(
            "Store",
            (
                "statistics_models",
                "models that the statistics of a span tell apart, of a tenant",
                20,
                "models",
                "`other`",
            ),
            (
                "statistics_journal",
                "lines of a shard that no statistics have counted yet",
                100_000,
                "lines",
                "the oldest go",
            ),
        ),
    }
)
