"""The histograms of this worker, mostly of how long things took: ``PALAVER_METRICS_PORT`` answers with them, and with
the longest stop of its loop.

They are kept in memory that the children of a tools worker share with their parent. So what a child saw is there when
the child has been killed, and the parent, which answers, need not ask.
"""

from __future__ import annotations

import mmap
import time
from bisect import bisect_left
from decimal import Decimal
from typing import Final, get_args

from palaver.schemas.models import Usage
from palaver.steps.leases import Lease, Settled
from palaver.steps.verdicts import AskPerson, Continue, Finish, GiveUp, HandBack, Postpone, RetryAfter, Verdict
from palaver.telemetry.exposition import Times, expose
from palaver.telemetry.metrics import METRICS, OTHER, Metric, StepOutcome, StopCause
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.step_kinds import TOOL, StepKind

from .active_step import ActiveStep

_OWN: Final = tuple(metric for metric in METRICS.values() if metric.source == "worker" and metric.buckets)
_STEP: Final = METRICS["palaver_step_duration_seconds"]
_WAIT: Final = METRICS["palaver_claim_wait_seconds"]
_STOP: Final = METRICS["palaver_cancel_stop_seconds"]
_LOOP_STOP: Final = METRICS["palaver_loop_stop_seconds"]
_LONGEST: Final = METRICS["palaver_loop_longest_stop_seconds"]
_FIRST: Final = METRICS["palaver_time_to_first_token_seconds"]
_CALL: Final = METRICS["gen_ai_client_operation_duration_seconds"]
_TOKENS: Final = METRICS["gen_ai_client_token_usage"]
_MODEL_ROWS: Final = 4
"""Series that a model has, at most: its calls, both of its tokens, and its provider's first bytes."""
_BYTES: Final = 8
"""Bytes of a number."""
_MINUTE: Final = 60

Series = tuple[str, tuple[str, ...]]
"""The name of a metric, and the values of its labels."""


class Histograms:
    """Made before children are. Each of them, and the process itself, writes at a place of its own."""

    def __init__(self, *kinds: StepKind, places: int = 1) -> None:
        """Make those of a worker that does steps of these kinds, in so many children if it has some; in none if none
        asks it."""
        self._place = 0
        self._places = places
        self._width = max(len(metric.buckets) for metric in _OWN) + 2
        """A row has a number for each bucket, one behind the last, and the sum."""
        # What a child adds here its parent does not see: it has to be here before. Of its loss no worker tells itself.
        known = [(metric.name, labels) for metric in _OWN for labels in metric.always]
        outcomes = [outcome for outcome in get_args(StepOutcome) if outcome != "lost"]
        known += [(_STEP.name, (kind.name, outcome)) for kind in kinds for outcome in outcomes]
        self._rows: dict[Series, int] = {series: row for row, series in enumerate(known)}
        self._most = len(known) + (_MODEL_ROWS * (limit_of("metric_models") + 1) if kinds != (TOOL,) else 0)
        self._cells = memoryview(mmap.mmap(-1, max(1, places) * self._most * self._width * _BYTES)).cast("d")
        self._models: set[tuple[str, str]] = set()
        self._longest: dict[tuple[int, StopCause], float] = {}
        """The longest stop of the loop in a minute: of this process alone, as a child does one step at a time."""

    def move_to(self, place: int) -> None:
        """In a child: it is the one at this place of the pool."""
        self._place = place

    def settled(self, lease: Lease, verdict: Verdict, settled: Settled, active: ActiveStep) -> None:
        """A step was claimed, worked on, and settled just now."""
        now = time.monotonic()
        self._observe(_STEP, now - active.began_at, lease.kind.name, outcome_of(lease, verdict, settled))
        self._observe(_WAIT, lease.waited)
        if active.cancelled_at is not None:
            self._observe(_STOP, now - active.cancelled_at)

    def model_call(self, provider: str, model: str, seconds: float, first: float | None, usage: Usage) -> None:
        """A model was called, and began to answer after ``first`` seconds if it did."""
        if (provider, model) not in self._models:
            if len(self._models) < limit_of("metric_models"):
                self._models.add((provider, model))
            else:
                count_exceeded("metric_models")
                model = OTHER
        self._observe(_CALL, seconds, provider, model)
        if first is not None:
            self._observe(_FIRST, first, provider)
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens:
                self._observe(_TOKENS, tokens, provider, model, kind)

    def loop_stopped(self, cause: StopCause, seconds: float) -> None:
        """The loop of this process stood still."""
        self._observe(_LOOP_STOP, seconds, cause)
        longest, now = self._longest_of_late(), (_minute(), cause)
        self._longest = {**longest, now: max(seconds, longest.get(now, 0.0))}

    def _longest_of_late(self) -> dict[tuple[int, StopCause], float]:
        """Those of this minute and the one before."""
        since = _minute() - 1
        return {key: seconds for key, seconds in self._longest.items() if key[0] >= since}

    def _observe(self, metric: Metric, value: float, *labels: str) -> None:
        if self._place >= self._places:
            return
        row = self._rows.setdefault((metric.name, labels), len(self._rows))
        if row >= self._most:
            return
        at = (self._place * self._most + row) * self._width
        self._cells[at + bisect_left(metric.buckets, value * metric.per)] += 1
        self._cells[at + self._width - 1] += value

    def exposed(self) -> str:
        """All of them, in Prometheus' text format. What is known before it is seen is there with 0: else the first one
        would be no increase."""
        times: dict[str, dict[tuple[str, ...], Times]] = {metric.name: {} for metric in _OWN}
        for (name, labels), row in tuple(self._rows.items()):
            times[name][labels] = self._times(METRICS[name], row)
        longest: dict[tuple[str, ...], float] = {}
        for (_, cause), seconds in self._longest_of_late().items():
            longest[cause,] = max(round(seconds, 6), longest.get((cause,), 0.0))
        return expose((*_OWN, _LONGEST), {**times, _LONGEST.name: longest})

    def _times(self, metric: Metric, row: int) -> Times:
        counts, total = [0] * (len(metric.buckets) + 1), 0.0
        for place in range(self._places):
            at = (place * self._most + row) * self._width
            cells = self._cells[at : at + self._width].tolist()
            counts = [one + int(other) for one, other in zip(counts, cells[: len(counts)], strict=True)]
            total += cells[-1]
        return Times(tuple(counts), Decimal(f"{total:.6f}"))


def _minute() -> int:
    return int(time.monotonic() // _MINUTE)


def outcome_of(lease: Lease, verdict: Verdict, settled: Settled) -> StepOutcome:
    """Return the outcome of the lease, in the words of ``palaver_steps_total``."""
    if settled.status in (RunStatus.CANCELLING, RunStatus.CANCELLED):
        return "abandoned"
    match verdict:
        case Postpone() | AskPerson():
            return "postponed"
        case HandBack():
            return "handed_back"
        case RetryAfter():
            return "retried" if settled.status == RunStatus.RUNNING else "failed"
        case GiveUp():
            return "failed"
        case Continue(outcomes=outcomes) if not lease.kind.asks_model and any(outcome.failure for outcome in outcomes):
            return "failed"
        case Continue() | Finish():
            return "done"
