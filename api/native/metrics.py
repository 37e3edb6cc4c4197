"""Metrics, for Prometheus."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend
from palaver.telemetry.exposition import MEDIA_TYPE

from ..http.auth import METRICS
from .dialect import NATIVE

_EXAMPLE: Final = 'palaver_runs{status="running"} 3\n'


@NATIVE.route(
    "GET",
    METRICS,
    scope="admin",
    tag="operations",
    summary="Metrics for Prometheus",
    answers={200: ("Prometheus' text format, whatever Accept says.", None)},
    problems=("operators_only",),
    also={"text/plain": {"schema": {"type": "string", "examples": [_EXAMPLE]}}},
)
async def metrics(backend: Backend) -> Response:
    """The store's state and counts. Each API process answers the same, up to five seconds old; 503 while the store is
    away. A key of `PALAVER_METRICS_KEYS` is enough."""
    text = await operations.read_metrics(backend)
    return Response(text, headers={"Cache-Control": "no-store"}, media_type=MEDIA_TYPE)
