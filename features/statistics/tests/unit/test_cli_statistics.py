"""``palaver stats``: a table of spans, their sum, errors and models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.command_line import CommandResult
from tests.scripted_api import ScriptedAPI, answer

COUNTS: dict[str, Any] = {
    "runs": {"submitted": 5, "completed": 3, "incomplete": 0, "failed": 1, "cancelled": 0, "expired": 0},
    "run_errors": {"timeout": 1},
    "steps": {"model": {"done": 6, "failed": 1}, "tool": {"done": 2}},
    "step_errors": {"timeout": 4},
    "queue_time": {"count": 9, "p50_seconds": 0.021, "p99_seconds": 1.5},
    "model_calls": {"count": 0, "p50_seconds": None, "p99_seconds": None},
    "models": [
        {
            "model": "fake/echo", "calls": 7, "input_tokens": 700, "output_tokens": 49, "cost_usd": 1.5,
            "unpriced_calls": 0,
        }
    ],
}  # fmt: skip
NAMES = "SINCE RUNS COMPLETED FAILED CANCELLED STEPS QUEUED P50 P99 CALLS P50 P99 COST"
REPORT: dict[str, Any] = {
    "window": "day",
    "tenant": "acme",
    "start": "2026-01-30T12:00:00Z",
    "end": "2026-01-31T12:00:00Z",
    "span_seconds": 900,
    "data": [{"start": "2026-01-31T09:15:00Z", **COUNTS}],
    "total": COUNTS,
}


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("GET", "/v1/statistics", answer(REPORT))
        yield server


def test_a_row_for_each_span_and_their_sum(api: ScriptedAPI) -> None:
    said = CommandResult(api, "stats", "day", "--tenant", "acme")
    header, span, total, *more = said.out.splitlines()
    assert " ".join(header.split()) == NAMES
    assert span.split()[-10:] == total.split()[-10:]
    assert " ".join(total.split()) == "in all 5 3 1 0 9 0.021 s 1.5 s - - $1.50"
    assert more == [
        "runs that failed: timeout 1",
        "attempts that failed: timeout 4",
        "fake/echo: 7 calls, 700 tokens in and 49 out, $1.50",
    ]
    (asked,) = api.asked("GET", "/v1/statistics")
    assert asked.query == {"window": "day", "tenant": "acme"}


def test_programs_get_it_as_the_api_said_it(api: ScriptedAPI) -> None:
    assert json.loads(CommandResult(api, "stats", "--json").out) == REPORT


def test_another_window_is_refused(api: ScriptedAPI) -> None:
    said = CommandResult(api, "stats", "month")
    assert said.code == 2
    assert "'hour', 'day', 'week'" in said.err
