"""Statistics: what became of runs and steps within the last hour, day or week, span by span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.keys import tenant_of
from palaver.schemas.fields import DataModel
from palaver.store.reading.records import NANODOLLARS
from palaver.telemetry.metrics import StepOutcome

from .histograms import Histogram, percentile
from .statistics import Statistics
from .tallies import SpanTally
from .windows import WINDOWS, WindowName


class RunCounts(DataModel):
    """Runs that were submitted, and those that have ended, by status."""

    submitted: int = 0
    completed: int = 0
    incomplete: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0


class TimeSummary(DataModel):
    """Times that something took, from a histogram: each percentile is at most 9.1 % from the time of its rank, and at
    least a millisecond."""

    count: int
    p50_seconds: float | None
    """Null: there was none."""
    p99_seconds: float | None


class ModelCounts(DataModel):
    """The use of a model."""

    model: str
    """`other`: those beyond the 20 first ones of a span."""
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    """Without the calls whose price is unknown."""
    unpriced_calls: int


class StatisticsCounts(DataModel):
    """The counts of a span, or of all."""

    runs: RunCounts
    run_errors: dict[str, int]
    """Runs that have failed, by error class."""
    steps: dict[str, dict[StepOutcome, int]]
    """Attempts that are over: for each kind of step, `model` and `tool`, how many ended in which way."""
    step_errors: dict[str, int]
    """Attempts that failed, were retried or whose worker was lost, by error class."""
    queue_time: TimeSummary
    """Times for which steps were ready before a worker took them, since their last delivery."""
    model_calls: TimeSummary
    """Times of attempts of model steps that were answered or failed."""
    models: list[ModelCounts]
    """In the order of their names."""


class StatisticsSpan(StatisticsCounts):
    """A span, and the counts of it."""

    start: datetime


class StatisticsReport(DataModel):
    """Statistics of a window."""

    window: WindowName
    tenant: str | None
    """The tenant that was asked for. Null: none was, so it is your own, or with an operator's key all together."""
    start: datetime
    end: datetime
    """The end of the present span, which is yet to come."""
    span_seconds: int
    data: list[StatisticsSpan]
    """The spans in which anything happened, the oldest first."""
    total: StatisticsCounts


async def read_statistics(backend: Backend, caller: Caller, window: WindowName, tenant: str | None) -> StatisticsReport:
    """Return the statistics of a tenant, or of all that the caller has.

    Raises:
        Refused: ``unknown_tenant``, also where there is one, and it is not the caller's.
        StoreUnavailable: the store took too long.
    """
    tag = None if tenant is None else (await tenant_of(backend, tenant, caller))[0]
    of = WINDOWS[window]
    present, tallies = await within_deadline(backend.store.part(Statistics).read(of, tag))
    total = SpanTally()
    for tally in tallies.values():
        total.merge(tally)

    def start(number: int) -> datetime:
        return datetime.fromtimestamp(number * of.seconds, UTC)

    return StatisticsReport(
        window=window,
        tenant=tenant,
        start=start(present - of.spans + 1),
        end=start(present + 1),
        span_seconds=of.seconds,
        data=[StatisticsSpan(start=start(number), **vars(_counts(tally))) for number, tally in tallies.items()],
        total=_counts(total),
    )


def _counts(tally: SpanTally) -> StatisticsCounts:
    steps: dict[str, dict[StepOutcome, int]] = {}
    for name, number in sorted(tally.steps.items()):
        kind, outcome = name.split(" ")
        steps.setdefault(kind, {})[outcome] = number  # type: ignore[index]  # as the scripts write it
    return StatisticsCounts(
        runs=RunCounts(**tally.runs),
        run_errors=dict(sorted(tally.run_errors.items())),
        steps=steps,
        step_errors=dict(sorted(tally.step_errors.items())),
        queue_time=_summary(tally.waited),
        model_calls=_summary(tally.called),
        models=[_model(name, numbers) for name, numbers in sorted(tally.models.items())],
    )


def _summary(times: Histogram) -> TimeSummary:
    return TimeSummary(count=sum(times.values()), p50_seconds=_seconds(times, 50), p99_seconds=_seconds(times, 99))


def _seconds(times: Histogram, percent: float) -> float | None:
    ms = percentile(times, percent)
    return None if ms is None else round(ms / 1000, 6)


def _model(name: str, numbers: Mapping[str, int]) -> ModelCounts:
    used = Counter(numbers)
    return ModelCounts(
        model=name,
        calls=used["calls"],
        input_tokens=used["input_tokens"],
        output_tokens=used["output_tokens"],
        cost_usd=used["cost"] / NANODOLLARS,
        unpriced_calls=used["unpriced_calls"],
    )
