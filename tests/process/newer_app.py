"""The Celery app of workers of the next version."""

from __future__ import annotations

from palaver.store.scripting import scripts

scripts.VERSION += 1  # type: ignore[misc]

from workers.app import app  # noqa: E402

__all__ = ["app"]
