"""Which runs are meant, by what they have in common: said once, for the store, the SDK and the command."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TypedDict

from palaver.models import Run


class RunFilter(TypedDict, total=False):
    """Runs that fit all that is given. What is left out, or None, lets every run through."""

    status: str | Collection[str] | None
    """One of several statuses: a list, or a text with commas between them."""
    conversation_id: str | None
    tag: str | None
    agent: str | None
    """The name of the run's agent."""
    error_class: str | None
    """The class of the error that the run failed with."""
    created_after: datetime | None
    created_before: datetime | None


def statuses(wanted: RunFilter) -> tuple[str, ...] | None:
    """The statuses that are named; None for all of them."""
    status = wanted.get("status")
    return tuple(status.split(",") if isinstance(status, str) else status) if status is not None else None


def admits(wanted: RunFilter, run: Run) -> bool:
    """Whether ``run`` fits."""
    named = statuses(wanted)
    error_class, tag = wanted.get("error_class"), wanted.get("tag")
    after, before = wanted.get("created_after"), wanted.get("created_before")
    return (
        (named is None or run.status in named)
        and wanted.get("conversation_id") in (None, run.conversation_id)
        and (tag is None or tag in run.tags)
        and (error_class is None or (run.error is not None and run.error.get("class") == error_class))
        and wanted.get("agent") in (None, run.agent.name)
        and (after is None or run.times.created_at > after)
        and (before is None or run.times.created_at < before)
    )
