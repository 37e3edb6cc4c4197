"""The only code that speaks Redis: one typed method for each script, grouped by who uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.processes.left_out import left_out

# redis-py offers metrics of its own where there is OpenTelemetry: 60 modules, and no way to do without.
with left_out("opentelemetry"):
    import redis.asyncio  # noqa: F401

if TYPE_CHECKING:
    from palaver.store.store import Store

__all__ = ["Store"]


def __getattr__(name: str) -> object:
    """Load the store when it is first named: all of it is a quarter of what a worker loads, and its first look at the
    others needs the fleet alone."""
    if name != "Store":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from palaver.store.store import Store

    return Store
