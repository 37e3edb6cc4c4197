"""Limits of batches. Each group stands behind a limit of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.limits import KIB, MIB, Limit, limit_rows

LIMITS: Final[Mapping[str, Sequence[Limit]]] = MappingProxyType(
    {
        "runs_below": limit_rows(
            "Agents",
            ("batches", "batches of a tenant", 200, "batches", "409 `batches_full`"),
        ),
        "batch_items": limit_rows(
            "Agents",
            ("batch_cells", "runs of a batch: items times agents times repeats", 200_000, "runs", "409 `batch_full`"),
            ("batch_bytes", "items of a batch, as JSON", 64 * MIB, "bytes", "409 `batch_full`"),
            ("batch_head", "a batch without its items, as JSON", 512 * KIB, "bytes", "422 `validation_error`"),
            (
                "batch_part",
                "items in a request",
                1_000,
                "items",
                "422 `validation_error`",
            ),
            ("batch_agents", "agents of a batch", 16, "agents", "422 `validation_error`"),
        ),
        "batch_expected": limit_rows(
            "Agents",
            ("batch_output", "answer in the results of a batch", 500, "characters", "cut"),
            ("batch_verdict", "verdict of a scorer, as JSON", KIB, "bytes", "cut to its beginning, as a text"),
            ("batch_lease", "time for which a process goes on with a batch alone", 10, "seconds", "others do"),
            ("batch_open", "time in which more items of a batch come", 24 * 3600, "seconds", "the batch is cancelled"),
            ("batch_unreadable", "time for which a batch cannot be read", 3600, "seconds", "it is `failed`"),
        ),
    }
)
