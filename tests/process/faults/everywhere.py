"""Faults that have nothing to do with what a provider speaks: each is the same in every protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.process.faults.bodies import MALFORMED, NOTHING
from tests.process.faults.broken import CONNECTIONS, TIMEOUTS
from tests.process.faults.row import Row
from tests.process.faults.statuses import LIMITS, STATUSES

CONNECTION = "refused no-host impossible-host no-tls no-answer half-a-head reset-in-head not-http bad-chunks"
CUT = "reset-in-body too-few-bytes only-keep-alives 503-then-cut 401-then-nothing"
TIME = "no-connection hang head-then-nothing stall too-long drip"
MISFIT = "html-as-stream gzip invalid-utf-8 huge"
NOTHING_THERE = "empty-body 204 103-then-nothing"
STATUS = "301 400-page 502-gzip 520-page"
LIMIT = "429-zero 429-less"
NAMES = frozenset(" ".join((CONNECTION, CUT, TIME, MISFIT, NOTHING_THERE, STATUS, LIMIT)).split())


def elsewhere(rows: Iterable[Row], prefix: str, provider: Mapping[str, Any]) -> Iterator[Row]:
    """These faults at a provider that speaks another protocol, but for those that are among its own `rows`."""
    own = {(row.name, form) for row in rows for form in row.forms}
    for row in (*CONNECTIONS, *TIMEOUTS, *MALFORMED, *NOTHING, *STATUSES, *LIMITS):
        name = f"{prefix}-{row.name}"
        forms = tuple(form for form in row.forms if (name, form) not in own)
        if row.name in NAMES and forms:
            yield replace(row, name=name, forms=forms, provider={**provider, **row.provider})
