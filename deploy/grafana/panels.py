"""What is on the dashboard: rows of panels, from the top down.

Every API process answers with what the store has, so each value is there once for each of them: `max` takes one. What a
process knows of itself is summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from palaver.telemetry.metrics import all_metrics


@dataclass(frozen=True)
class Panel:
    """A graph; `queries` are PromQL by the legend of their series."""

    title: str
    unit: str
    queries: dict[str, str]
    says: str = ""
    stacked: bool = False


def _rate(metric: str, by: str, *, where: str = "") -> str:
    return f"max by ({by}) (rate({metric}{where}[$__rate_interval]))"


def _quantiles(metric: str, by: str = "", *, window: str = "$__rate_interval") -> dict[str, str]:
    """Three of them, of a histogram; what its labels tell apart is summed up, but for ``by``."""
    rates = f"rate({metric}_bucket[{window}])"
    if all_metrics()[metric].source != "worker":
        rates = f"max by ({', '.join(('le', *all_metrics()[metric].labels))}) ({rates})"
    labels = ", ".join(filter(None, ("le", by)))
    shown = f" {{{{{by}}}}}" if by else ""
    return {
        f"p{each}{shown}": f"histogram_quantile({each / 100:g}, sum by ({labels}) ({rates}))" for each in (50, 95, 99)
    }


_END: Final = "status, stop_reason, error_class"
_UNFINISHED: Final = "queued|running|requires_action|paused|cancelling"

AS_WORKERS_SEE: Final = "How long things take, as workers see it"

ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Runs": (
        Panel(
            "Runs that ended, by status",
            "ops",
            {"{{status}}": f"sum by (status) ({_rate('palaver_runs_finished_total', _END)})"},
            stacked=True,
        ),
        Panel(
            "Runs that failed, by error class",
            "ops",
            {
                "{{error_class}}": "sum by (error_class) ("
                + _rate("palaver_runs_finished_total", "stop_reason, error_class", where='{status="failed"}')
                + ") > 0"
            },
            stacked=True,
        ),
        Panel(
            "Unfinished runs",
            "short",
            {
                "{{status}}": f'max by (status) (palaver_runs{{status=~"{_UNFINISHED}"}})',
                "limit": "max(palaver_runs_limit)",
            },
        ),
        Panel("From submit to end", "s", _quantiles("palaver_run_duration_seconds")),
        Panel("Submitted", "ops", {"runs": "max(rate(palaver_runs_submitted_total[$__rate_interval]))"}),
        Panel(
            "Cancelled: from the request to the end",
            "s",
            _quantiles("palaver_cancel_duration_seconds", window="1h"),
            "Of the last hour.",
        ),
    ),
    "What waits": (
        Panel("Runs that wait, by reason", "short", {"{{reason}}": "max by (reason) (palaver_waiting)"}, stacked=True),
        Panel("The oldest of them", "s", {"{{reason}}": "max by (reason) (palaver_waiting_oldest_seconds)"}),
        Panel("Calls that wait for a decision", "short", {"{{type}}": "max by (type) (palaver_pending_actions)"}),
        Panel("The oldest of these", "s", {"{{type}}": "max by (type) (palaver_pending_actions_oldest_seconds)"}),
    ),
    "Queues and workers": (
        Panel("Steps that are ready", "short", {"{{queue}}": "max by (queue) (palaver_queue_ready)"}),
        Panel(
            "The oldest of them",
            "s",
            {
                "{{queue}}": "max by (queue) (palaver_queue_oldest_seconds)",
                "overdue": "max(palaver_overdue_seconds)",
            },
            "Overdue: what no sweeper has acted on.",
        ),
        Panel(
            "Steps in flight",
            "short",
            {
                "{{queue}}": "max by (queue) (palaver_queue_running)",
                "{{queue}}, capacity": "max by (queue) (palaver_queue_capacity)",
            },
        ),
        Panel("Workers", "short", {"{{queue}}, {{state}}": "max by (queue, state) (palaver_workers)"}),
    ),
    "Steps": (
        Panel(
            "Steps, by what became of them",
            "ops",
            {"{{kind}}, {{outcome}}": f"{_rate('palaver_steps_total', 'kind, outcome')} > 0"},
            stacked=True,
        ),
        Panel(
            "Failures that are tried again, by error class",
            "ops",
            {"{{error_class}}": f"{_rate('palaver_retries_total', 'error_class')} > 0"},
            stacked=True,
        ),
        Panel(
            "Failures that are not",
            "ops",
            {"{{kind}}, {{error_class}}": f"{_rate('palaver_step_failures_total', 'kind, error_class')} > 0"},
            stacked=True,
        ),
        Panel(
            "Steps whose worker was lost, in an hour", "short", {"steps": "max(increase(palaver_recoveries_total[1h]))"}
        ),
    ),
    "Models": (
        Panel(
            "Calls of models",
            "ops",
            {"{{provider}}/{{model}}": _rate("palaver_model_calls_total", "provider, model")},
            "Those that failed included.",
            stacked=True,
        ),
        Panel(
            "Tokens",
            "short",
            {
                "{{model}}, {{type}}": "sum by (model, type) ("
                + _rate("palaver_tokens_total", "provider, model, type")
                + ")"
            },
            "A second.",
            stacked=True,
        ),
        Panel(
            "Cost of the last hour",
            "currencyUSD",
            {"{{provider}}/{{model}}": "max by (provider, model) (increase(palaver_cost_usd_total[1h]))"},
            "By the prices in the table of providers.",
        ),
        Panel(
            "Steps without a price, in an hour",
            "short",
            {"{{provider}}/{{model}}": "max by (provider, model) (increase(palaver_unpriced_steps_total[1h]))"},
        ),
        Panel(
            "Calls that providers have",
            "short",
            {
                "{{provider}}": "max by (provider) (palaver_provider_in_flight)",
                "{{provider}}, waiting": "max by (provider) (palaver_provider_waiting) > 0",
            },
        ),
        Panel(
            "Providers that cool down, or are out",
            "short",
            {
                "{{provider}} cools down": "max by (provider) (palaver_provider_cooling)",
                "{{provider}}, outages": "max by (provider) (palaver_provider_outages)",
            },
        ),
        Panel(
            "Cool-downs in an hour",
            "short",
            {"{{provider}}": "max by (provider) (increase(palaver_provider_cooldowns_total[1h]))"},
        ),
    ),
    AS_WORKERS_SEE: (
        Panel("A step, from its claim to its end", "s", _quantiles("palaver_step_duration_seconds", "kind")),
        Panel(
            "The first token of an answer",
            "s",
            _quantiles("palaver_time_to_first_token_seconds", "provider"),
        ),
        Panel("A call of a model", "s", _quantiles("gen_ai_client_operation_duration_seconds", "model")),
        Panel("Tokens of a call", "short", _quantiles("gen_ai_client_token_usage", "type")),
        Panel("A step waits for its worker", "s", _quantiles("palaver_claim_wait_seconds")),
        Panel(
            "A step stops after its run was cancelled",
            "s",
            _quantiles("palaver_cancel_stop_seconds", window="1h"),
            "Of the last hour.",
        ),
        Panel(
            "The longest stop of a loop",
            "s",
            {"{{cause}}": "max by (cause) (palaver_loop_longest_stop_seconds)"},
            "Of late, in any worker.",
        ),
        Panel("A stop of a loop", "s", _quantiles("palaver_loop_stop_seconds", "cause"), "Of 15 ms or more."),
    ),
    "The store and the API": (
        Panel("Memory of Redis", "bytes", {"used": "max(palaver_store_memory_bytes)"}),
        Panel(
            "Share of its maxmemory",
            "percentunit",
            {
                "used": "max(palaver_store_memory_ratio)",
                "new runs are refused": "max(palaver_store_memory_limit_ratio)",
            },
            "Not there without maxmemory.",
        ),
        Panel(
            "Redis keeps what it is given",
            "short",
            {
                "append-only file": "max(palaver_store_append_only)",
                "its disk is good": "max(palaver_store_disk_good)",
                "it evicts nothing": "max(palaver_store_noeviction)",
            },
            "1 is well, 0 is not.",
        ),
        Panel(
            "Redis came back with less than it had",
            "short",
            {"within a day": "max(palaver_store_rewound_timestamp_seconds > bool 0)"},
            "1 for a day after a process noticed that.",
        ),
        Panel(
            "Keys that Redis removed in an hour",
            "short",
            {"evicted": "max(increase(palaver_store_evicted_keys_total[1h]))"},
        ),
        Panel(
            "Replicas of Redis",
            "short",
            {
                "they follow": "max(palaver_store_replicas)",
                "bytes behind": "max(palaver_store_replication_lag_bytes) or vector(0)",
            },
        ),
        Panel("Streams and long polls", "short", {"{{instance}}": "palaver_api_watchers"}, stacked=True),
        Panel(
            "Met beyond a limit",
            "ops",
            {"{{limit}}": "sum by (limit) (rate(palaver_api_limits_exceeded_total[$__rate_interval])) > 0"},
        ),
    ),
    "Around runs": (
        Panel(
            "Ticks of schedules in an hour",
            "short",
            {"{{outcome}}": "max by (outcome) (increase(palaver_schedule_ticks_total[1h]))"},
        ),
        Panel(
            "Attempts to send events to webhooks",
            "ops",
            {"{{outcome}}": "max by (outcome) (rate(palaver_webhook_attempts_total[$__rate_interval]))"},
            stacked=True,
        ),
        Panel(
            "For how long an event for webhooks has waited whose turn it is",
            "s",
            {"oldest": "max(palaver_webhook_oldest_seconds)"},
            "Above a minute: no worker delivers, or too few.",
        ),
        Panel(
            "Conversations that wait for the archive",
            "short",
            {"waiting": "max(palaver_archive_waiting)"},
            "Growing: the database is away, and Redis keeps all that ends.",
        ),
        Panel(
            "For how long what has ended has waited for the archive",
            "s",
            {"oldest": "max(palaver_archive_oldest_seconds)"},
            "Above five minutes: the database is away or slow.",
        ),
        Panel(
            "Webhooks, and what they are to be sent",
            "short",
            {"{{state}}": "max by (state) (palaver_webhooks)", "pending": "max(palaver_webhook_pending)"},
        ),
        Panel(
            "Events that webhooks will not hear of, in an hour",
            "short",
            {
                "lost": "max(increase(palaver_webhook_events_lost_total[1h]))",
                "dropped": "max(increase(palaver_webhook_deliveries_dropped_total[1h]))",
            },
        ),
    ),
}
"""What an operator looks at."""


def queries(*rows: str) -> dict[str, str]:
    """Every query of these rows, or of all, by panel and legend."""
    return {
        f"{panel.title}: {legend}": query
        for row in rows or ROWS
        for panel in ROWS[row]
        for legend, query in panel.queries.items()
    }
