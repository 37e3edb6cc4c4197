"""Every metric of the core, and what finds those of features: the scripts count under these names, ``GET /metrics``
answers with them, and docs/reference/metrics.md is made from them.

``python -m docs.generate metrics`` prints the tables of that page; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Final, Literal, get_args

from palaver.errors import ErrorClass
from palaver.feature import with_rows
from palaver.late import dataclass
from palaver.schemas.actions import ActionType
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from palaver.vocabulary.step_kinds import KINDS, QUEUES

Source = Literal["scripts", "store", "process", "worker"]
"""The origin of a metric: counted by the scripts, in the very step that writes what is counted; read off the store when
they are asked for; known to the API process that is asked; or seen by a worker, which answers itself."""
StepOutcome = Literal["done", "failed", "retried", "postponed", "handed_back", "lost", "abandoned"]
"""The end of a lease: each one ends in exactly one of these ways."""
StopCause = Literal["collection", "other"]
"""The cause for which a loop stood still: garbage collection, or anything else that held it or the whole process."""
TokenType = Literal["input", "cache_read", "cache_write", "output", "reasoning"]
"""Each token has one: of the input, those of it that came from the provider's cache or went into it, of the answer, and
those of it that the model thought with."""

PREFIX: Final = "palaver_"
OTHER: Final = "other"
"""In place of a value that users choose, once there are as many as the limit ``metric_models`` says."""
NANO: Final = 1_000_000_000
MILLI: Final = 1000
LEAST_STOP: Final = 0.015
"""Seconds for which a loop stands still before that is a stop."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, and what it is made of."""

    group: str
    """The table of docs/reference/metrics.md that it stands in."""
    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    source: Source
    labels: tuple[str, ...] = ()
    always: tuple[tuple[str, ...], ...] = ()
    """Values of the labels that are there from the start, with 0: else the first of them would be no increase."""
    per: int = 1
    """The scripts count whole numbers: so many of them are one."""
    buckets: tuple[int, ...] = ()
    """The upper edges of a histogram's buckets, in the unit that the scripts count in."""

    @property
    def series(self) -> str:
        """The name that the scripts use, before the values of its labels."""
        return self.name.removeprefix(PREFIX).removesuffix("_total")


def one_label(*values: object) -> tuple[tuple[str, ...], ...]:
    """Return values of a metric's only label."""
    return tuple((str(value),) for value in values)


def _ends() -> Iterator[tuple[str, str, str]]:
    """Status, stop reason and error class, which is empty for runs that did not fail."""
    for reason in StopReason:
        if reason is StopReason.STUCK:
            yield (reason.status, reason, ErrorClass.STUCK)
        elif reason is StopReason.ERROR:
            yield from ((reason.status, reason, error_class) for error_class in ErrorClass)
        else:
            yield (reason.status, reason, "")


_TERMINAL: Final = tuple(status for status in RunStatus if status.terminal)
_STEP_KINDS: Final = tuple(kind.name for kind in KINDS)
_RUNS: Final = "Runs"
_STEPS: Final = "Steps"
_MODELS: Final = "Models"
_QUEUES: Final = "Queues and workers"
_PROVIDERS: Final = "Providers"
_STORE: Final = "The store"
_API: Final = "An API process"
_WORKER: Final = "A worker process"

_ALL: Final = (
    Metric(_RUNS, "palaver_runs_submitted_total", "counter", "Runs that were taken on.", "scripts", always=((),)),
    Metric(
        _RUNS,
        "palaver_runs_finished_total",
        "counter",
        "Runs that have ended.",
        "scripts",
        ("status", "stop_reason", "error_class"),
        always=tuple(_ends()),
    ),
    Metric(
        _RUNS,
        "palaver_run_duration_seconds",
        "histogram",
        "From the submit of a run, or its start time, to its end.",
        "scripts",
        ("status",),
        always=one_label(*_TERMINAL),
        per=MILLI,
        buckets=(1000, 5000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000),
    ),
    Metric(
        _RUNS,
        "palaver_cancel_duration_seconds",
        "histogram",
        "From the request to cancel a run to its end.",
        "scripts",
        always=((),),
        per=MILLI,
        buckets=(50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000),
    ),
    Metric(
        _RUNS,
        "palaver_runs",
        "gauge",
        "Runs that the store has; those that have ended go after their retention.",
        "store",
        ("status",),
        always=one_label(*RunStatus),
    ),
    Metric(
        _RUNS,
        "palaver_waiting",
        "gauge",
        "Unfinished runs that no worker works on, by what they wait for.",
        "store",
        ("reason",),
        always=one_label(*WaitReason),
    ),
    Metric(
        _RUNS,
        "palaver_waiting_oldest_seconds",
        "gauge",
        "For how long the one that has waited longest for that has done so.",
        "store",
        ("reason",),
        always=one_label(*WaitReason),
    ),
    Metric(
        _RUNS,
        "palaver_pending_actions",
        "gauge",
        "Tool calls that wait for a person's decision or for a client's output.",
        "store",
        ("type",),
        always=one_label(*get_args(ActionType)),
    ),
    Metric(
        _RUNS,
        "palaver_pending_actions_oldest_seconds",
        "gauge",
        "For how long the oldest of them has waited.",
        "store",
        ("type",),
        always=one_label(*get_args(ActionType)),
    ),
    Metric(
        _STEPS,
        "palaver_steps_total",
        "counter",
        "Leases of steps that have ended, by what became of them.",
        "scripts",
        ("kind", "outcome"),
        always=tuple(product(_STEP_KINDS, get_args(StepOutcome))),
    ),
    Metric(
        _STEPS,
        "palaver_step_failures_total",
        "counter",
        "Steps that failed and are not tried again: a tool's failure is told to the model, a model's ends the run.",
        "scripts",
        ("kind", "error_class"),
        always=tuple(product(_STEP_KINDS, ErrorClass)),
    ),
    Metric(
        _STEPS,
        "palaver_retries_total",
        "counter",
        "Failures after which a step is tried again.",
        "scripts",
        ("error_class",),
        always=one_label(*ErrorClass),
    ),
    Metric(
        _STEPS,
        "palaver_recoveries_total",
        "counter",
        "Steps whose worker was lost, and whose run goes on without it.",
        "scripts",
        always=((),),
    ),
    Metric(
        _MODELS,
        "palaver_model_calls_total",
        "counter",
        "Calls that model steps made, those that failed included.",
        "scripts",
        ("provider", "model"),
    ),
    Metric(
        _MODELS,
        "palaver_tokens_total",
        "counter",
        "Tokens that providers say they have used.",
        "scripts",
        ("provider", "model", "type"),
    ),
    Metric(
        _MODELS,
        "palaver_cost_usd_total",
        "counter",
        "What they cost, in dollars, by the prices in the table of providers.",
        "scripts",
        ("provider", "model"),
        per=NANO,
    ),
    Metric(
        _MODELS,
        "palaver_unpriced_steps_total",
        "counter",
        "Model steps whose cost is unknown; it is not in the sum.",
        "scripts",
        ("provider", "model"),
    ),
    Metric(
        _QUEUES,
        "palaver_queue_ready",
        "gauge",
        "Steps that are ready and that no worker has begun.",
        "store",
        ("queue",),
        always=one_label(*QUEUES),
    ),
    Metric(
        _QUEUES,
        "palaver_queue_oldest_seconds",
        "gauge",
        "For how long the oldest of them has waited for a worker or for the turn of its tenant.",
        "store",
        ("queue",),
        always=one_label(*QUEUES),
    ),
    Metric(
        _QUEUES,
        "palaver_queue_running",
        "gauge",
        "Steps in flight, as the workers say.",
        "store",
        ("queue",),
        always=one_label(*QUEUES),
    ),
    Metric(
        _QUEUES,
        "palaver_queue_capacity",
        "gauge",
        "Steps that workers can have in flight, without those that drain.",
        "store",
        ("queue",),
        always=one_label(*QUEUES),
    ),
    Metric(
        _QUEUES,
        "palaver_workers",
        "gauge",
        "Workers that have reported within three heartbeats.",
        "store",
        ("queue", "state"),
        always=tuple(product(QUEUES, ("working", "draining", "refused"))),
    ),
    Metric(
        _QUEUES,
        "palaver_overdue_seconds",
        "gauge",
        "For how long the oldest of what is due has been so: more than some seconds, and no sweeper works.",
        "store",
        always=((),),
    ),
    Metric(
        _PROVIDERS,
        "palaver_provider_cooling",
        "gauge",
        "1 while no worker calls the provider, or one of its models, because it asked for that, else 0.",
        "store",
        ("provider",),
    ),
    Metric(
        _PROVIDERS,
        "palaver_provider_cooldowns_total",
        "counter",
        "How often that has begun.",
        "store",
        ("provider",),
    ),
    Metric(
        _PROVIDERS,
        "palaver_provider_outages",
        "gauge",
        "Open circuits: 1 if the provider is out, and 1 more for each of its models that is.",
        "store",
        ("provider",),
    ),
    Metric(
        _PROVIDERS,
        "palaver_provider_waiting",
        "gauge",
        "Model steps that wait for their turn at the provider.",
        "store",
        ("provider",),
    ),
    Metric(
        _PROVIDERS,
        "palaver_provider_in_flight",
        "gauge",
        "Calls under way, of providers with `max_in_flight`.",
        "store",
        ("provider",),
    ),
    Metric(
        _STORE,
        "palaver_store_memory_bytes",
        "gauge",
        "Memory that Redis uses for data; not there if it does not tell.",
        "store",
    ),
    Metric(
        _STORE,
        "palaver_store_memory_ratio",
        "gauge",
        "Its share of Redis's `maxmemory`; not there without one.",
        "store",
    ),
    Metric(
        _STORE,
        "palaver_store_memory_limit_ratio",
        "gauge",
        "The share at which no more runs are taken on; not there without `maxmemory`.",
        "store",
    ),
    Metric(
        _STORE,
        "palaver_store_rewound_timestamp_seconds",
        "gauge",
        "Unix time at which a process last noticed that the store had lost something; 0 if none did for a day.",
        "store",
        always=((),),
    ),
    Metric(
        _STORE,
        "palaver_store_append_only",
        "gauge",
        "1 if Redis keeps an append-only file, 0 if it loses what came after its last snapshot.",
        "store",
    ),
    Metric(
        _STORE,
        "palaver_store_disk_good",
        "gauge",
        "1 if the last write and rewrite of its append-only file and its last snapshot went well.",
        "store",
    ),
    Metric(_STORE, "palaver_store_noeviction", "gauge", "1 if its `maxmemory-policy` is `noeviction`.", "store"),
    Metric(
        _STORE,
        "palaver_store_evicted_keys_total",
        "counter",
        "Keys that it removed for want of memory, since it started: runs and conversations.",
        "store",
    ),
    Metric(_STORE, "palaver_store_replicas", "gauge", "Replicas that follow it.", "store"),
    Metric(
        _STORE,
        "palaver_store_replication_lag_bytes",
        "gauge",
        "What the replica furthest behind has not confirmed; not there without replicas.",
        "store",
    ),
    Metric(_STORE, "palaver_runs_limit", "gauge", "Unfinished runs that there may be, about.", "process", always=((),)),
    Metric(_API, "palaver_api_watchers", "gauge", "Streams and long polls under way.", "process", always=((),)),
    Metric(
        _API,
        "palaver_api_limits_exceeded_total",
        "counter",
        "What this process met beyond a limit, by its counter on the page of limits.",
        "process",
        ("limit",),
    ),
    Metric(_API, "palaver_build_info", "gauge", "1, with the version.", "process", ("version",)),
    Metric(
        _WORKER,
        "palaver_step_duration_seconds",
        "histogram",
        "From the claim of a step until it was settled.",
        "worker",
        ("kind", "outcome"),
        per=MILLI,
        buckets=(5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000),
    ),
    Metric(
        _WORKER,
        "palaver_claim_wait_seconds",
        "histogram",
        "From the delivery of a step to its claim, by Redis's clock.",
        "worker",
        always=((),),
        per=MILLI,
        buckets=(5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000),
    ),
    Metric(
        _WORKER,
        "palaver_cancel_stop_seconds",
        "histogram",
        "From when a worker heard of a cancel until its step was settled.",
        "worker",
        always=((),),
        per=MILLI,
        buckets=(5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000),
    ),
    Metric(
        _WORKER,
        "palaver_loop_stop_seconds",
        "histogram",
        "For how long its loop stood still, each time that it did for 15 ms or more: nothing else goes on meanwhile.",
        "worker",
        ("cause",),
        always=one_label(*get_args(StopCause)),
        per=MILLI,
        buckets=(15, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000),
    ),
    Metric(
        _WORKER,
        "palaver_loop_longest_stop_seconds",
        "gauge",
        "The longest of these times in this minute and the one before; 0 without one.",
        "worker",
        ("cause",),
        always=one_label(*get_args(StopCause)),
    ),
    Metric(
        _WORKER,
        "palaver_time_to_first_token_seconds",
        "histogram",
        "From the call of a model to the first byte of its answer.",
        "worker",
        ("provider",),
        per=MILLI,
        buckets=(10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000),
    ),
    # The names and the edges of these two are OpenTelemetry's: gen_ai.client.operation.duration and .token.usage.
    Metric(
        _WORKER,
        "gen_ai_client_operation_duration_seconds",
        "histogram",
        "A call of a model, also one that failed.",
        "worker",
        ("provider", "model"),
        per=MILLI,
        buckets=tuple(10 * 2**power for power in range(14)),
    ),
    Metric(
        _WORKER,
        "gen_ai_client_token_usage",
        "histogram",
        "Tokens of a call, input or output.",
        "worker",
        ("provider", "model", "type"),
        buckets=tuple(4**power for power in range(14)),
    ),
)

METRICS: Final[Mapping[str, Metric]] = MappingProxyType({metric.name: metric for metric in _ALL})
"""The metrics of the core, by name."""


@cache
def all_metrics() -> Mapping[str, Metric]:
    """Return every metric, by name: also those of features."""
    return with_rows(METRICS, "metrics")


@cache
def counted() -> Mapping[str, Metric]:
    """Return the metrics that the scripts count, by what these call them."""
    return MappingProxyType({each.series: each for each in all_metrics().values() if each.source == "scripts"})
