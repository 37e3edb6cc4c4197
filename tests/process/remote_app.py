"""The Celery app of workers with one more tool source."""

from __future__ import annotations

from tests.process.remote_tools import remote_tools
from workers import sources

sources.SOURCES = (*sources.SOURCES, remote_tools)  # type: ignore[misc]

from workers.app import app  # noqa: E402

__all__ = ["app"]
