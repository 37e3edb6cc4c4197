"""Traces of attempts, and of runs from the records of the store, sent as spans (ADR 0042)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.store import Store
from palaver.telemetry.traces import Tracing


def require_extra(environment: Mapping[str, str]) -> bool:
    """Tell whether traces are to be sent.

    Raises:
        ConfigurationError: they are, and what sends them is not installed; or they are to be sent as Palaver cannot.
    """
    if Tracing.of(environment) is None:
        return False
    try:
        from . import sender  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and what sends traces is not installed: "
            "pip install 'palaver[otel]', or unset it"
        ) from None
    return True


def chores(
    settings: Settings, environment: Mapping[str, str], store: Store, worker: str
) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """The chore that sends traces; none if they are not to be sent. Raises as `require_extra`."""
    if not require_extra(environment):
        return []
    from .sender import SpanSender

    return [SpanSender(store.spans, worker, content=settings.trace_content).run]
