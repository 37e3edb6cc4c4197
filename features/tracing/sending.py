"""The loop of workers that sends traces. What sends them is imported where an endpoint is set."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.store import Store
from palaver.telemetry.traces import Tracing

from .outbox import SpanOutbox


def require(settings: Settings) -> None:
    """Look whether traces are to be sent, and can be.

    Raises:
        ConfigurationError: what sends them is not installed; or they are to be sent as Palaver cannot.
    """
    if Tracing.of(os.environ) is None:
        return
    try:
        from . import sender  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and what sends traces is not installed: "
            "pip install 'palaver[otel]', or unset it"
        ) from None


def loops(settings: Settings, store: Store, worker: str) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return the loop that sends traces; none if they are not to be sent. Raises as `require`."""
    require(settings)
    if Tracing.of(os.environ) is None:
        return []
    from .sender import SpanSender

    return [SpanSender(store.part(SpanOutbox), worker, content=settings.trace_content).run]
