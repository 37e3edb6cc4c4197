"""Metrics: the samples from the store, and those that only this process has."""

from __future__ import annotations

from palaver.operations.acting import check_sees_installation
from palaver.operations.backend import Backend, within_deadline
from palaver.telemetry.exposition import Samples, expose
from palaver.telemetry.metrics import all_metrics
from palaver.version import __version__
from palaver.vocabulary.limits import all_limits, exceeded


async def read_metrics(backend: Backend) -> str:
    """Return every metric, in Prometheus' text format. Raises what the store raises: then there are no metrics at
    all, and Refused ``operators_only``."""
    check_sees_installation()
    samples = await within_deadline(backend.measured.samples())
    own: Samples = {
        "palaver_runs_limit": {(): backend.settings.max_runs},
        "palaver_api_watchers": {(): backend.store.feeds.watching},
        "palaver_api_limits_exceeded_total": {(name,): exceeded[name] for name in all_limits()},
        "palaver_build_info": {(__version__,): 1},
    }
    return expose(all_metrics().values(), {**samples, **own})
