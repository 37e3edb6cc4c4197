"""What the store has counted, compared with the runs and events that it counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from palaver.schemas.models import Run
from palaver.store import Store
from palaver.store.reading.usage_ledger import today
from palaver.telemetry.exposition import Samples, Times
from palaver.telemetry.metrics import counted as by_scripts
from palaver.vocabulary.lifecycle import RunStatus
from tests.checkers.evidence import History
from tests.feature_cases import brought_to_tests

Sums = Mapping[str, Counter[tuple[str, ...]]]
"""Each counter, by the values of its labels."""


LEDGER: Final = "the ledger of usage"


async def counted(store: Store) -> Sums:
    """What has been counted so far, and what is in the ledgers of late: a test may run at midnight."""
    ledger = Counter[tuple[str, ...]]()
    async for _, used in store.usage.read(today() - timedelta(days=1), today() + timedelta(days=1), [""]):
        for numbers in used.values():
            ledger.update({(column,): number for column, number in numbers.items()})
    told = {name: await of(store) for name, of in brought_to_tests("counted").items()}
    return {**sums_of(await store.measuring.read(())), LEDGER: ledger, **told}


def sums_of(samples: Samples) -> Sums:
    """The counters among samples, and how many times there are of each histogram."""
    return {
        metric.name: Counter({labels: _total(value) for labels, value in samples[metric.name].items()})
        for metric in by_scripts().values()
    }


def since(before: Sums, now: Sums) -> Sums:
    """What came on top of ``before``. Fails if something has become less."""
    found: dict[str, Counter[tuple[str, ...]]] = {}
    for name, numbers in now.items():
        found[name] = Counter(numbers)
        found[name].subtract(before[name])
        assert all(number >= 0 for number in found[name].values()), f"{name} went back"
        found[name] = +found[name]
    return found


def check_sums(counts: Sums, histories: Iterable[History]) -> None:
    """``counts`` are those of these runs, which have ended and whose feeds are whole: each exactly once."""
    runs = [run for history in histories for run in history.runs.values()]
    events = [event for history in histories for of_run in history.events.values() for event in of_run]
    kinds = Counter(event.type for event in events)
    ends = Counter((run.status, run.stop_reason, run.error["class"] if run.error else "") for run in runs)
    used = Counter[str]()
    for run in runs:
        used.update({name: number for name, number in run.usage if isinstance(number, int)})
    leases, tokens = counts["palaver_steps_total"], _by(counts["palaver_tokens_total"], 2)
    outcomes = _by(leases, 1)
    failed = sum(run.status is RunStatus.FAILED and "worker_lost" in str(run.error) for run in runs)
    told: dict[str, tuple[Any, Any]] = {
        "runs that were submitted": (counts["palaver_runs_submitted_total"].total(), len(runs)),
        "runs that have ended": (counts["palaver_runs_finished_total"], ends),
        "durations": (counts["palaver_run_duration_seconds"].total(), len(runs)),
        "cancels": (
            counts["palaver_cancel_duration_seconds"].total(),
            sum(run.status is RunStatus.CANCELLED for run in runs),
        ),
        "leases": (leases.total(), kinds["step.started"]),
        "leases of tools": (
            sum(number for (kind, _), number in leases.items() if kind == "tool"),
            sum(event.type == "step.started" and "/" in event.data["step"] for event in events),
        ),
        "retries": (counts["palaver_retries_total"].total(), kinds["run.retrying"]),
        "steps that were tried again": (outcomes["retried"], kinds["run.retrying"]),
        "recoveries": (counts["palaver_recoveries_total"].total(), kinds["step.lost"] - failed),
        "failures": (counts["palaver_step_failures_total"].total(), outcomes["failed"]),
        "input": (tokens["input"] + tokens["cache_read"] + tokens["cache_write"], used["input_tokens"]),
        "output": (tokens["output"] + tokens["reasoning"], used["output_tokens"]),
        "calls of models": (counts["palaver_model_calls_total"].total(), used["model_calls"]),
        **{
            f"{name} in the ledger": (counts[LEDGER][name,], used[name])
            for name in ("model_calls", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
        },
    }
    told |= {
        f"{brought}: {what}": (counts[brought][labels], truth)
        for brought in counts.keys() & brought_to_tests("counted").keys()
        for what, labels, truth in (
            ("runs that were submitted", ("run", "submitted"), len(runs)),
            *((f"runs that are {status}", ("run", status), number) for status, number in _by_status(runs).items()),
            ("attempts", ("leases",), kinds["step.started"]),
            ("retries", ("step", "model", "retried"), leases["model", "retried"]),
            ("attempts of models", ("step", "model", "done"), leases["model", "done"]),
            ("attempts of tools", ("step", "tool", "done"), leases["tool", "done"]),
            ("input", ("input_tokens",), used["input_tokens"]),
            ("output", ("output_tokens",), used["output_tokens"]),
            ("calls of models", ("calls",), used["model_calls"]),
        )
    }
    wrong = {what: (number, truth) for what, (number, truth) in told.items() if number != truth}
    assert not wrong, f"counted, and true: {wrong}"
    assert outcomes["lost"] >= kinds["step.lost"], (outcomes, kinds)


def _by(numbers: Counter[tuple[str, ...]], place: int) -> Counter[str]:
    """Summed up by one label."""
    found = Counter[str]()
    for labels, number in numbers.items():
        found[labels[place]] += number
    return found


def _by_status(runs: Iterable[Run]) -> Counter[RunStatus]:
    """The number of runs of each status; those that none has are 0."""
    found = Counter(run.status for run in runs)
    return Counter({status: found[status] for status in RunStatus if status.terminal})


def _total(value: float | Decimal | Times) -> Any:
    return sum(value.buckets) if isinstance(value, Times) else value
