"""Filters for runs, by what the runs have in common: defined once, for the store, the SDK and the command."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict

from palaver.schemas.agents import referred
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus, StopReason

OLDEST: Final = 10 * 366 * 86400
"""Seconds: times further away are refused."""


class RunFilter(TypedDict, total=False):
    """Runs that fit all of these conditions. One that is left out, or None, lets every run through."""

    status: str | Collection[str] | None
    """One of several statuses: a list, or a text with commas between them."""
    stop_reason: str | None
    conversation_id: str | None
    parent: str | None
    """The run whose calls began it."""
    tag: str | None
    metadata: Mapping[str, str] | None
    """It has all of these entries."""
    submitted_by: str | None
    """The name of the key that submitted it, or ``key/subject``."""
    agent: str | None
    """The name of the run's agent; of one on the server also with a version, ``support@7``."""
    provider: str | None
    model: str | None
    """``provider/name``. Both are those that the run asks now, or asked last."""
    tool: str | None
    """A tool that its agent may use, of the server or of the client."""
    error_class: str | None
    """The class of the error that the run failed with."""
    error_code: str | None
    """The code of that error."""
    retried: bool | None
    """True for runs that another run goes on with."""
    created_after: datetime | None
    created_before: datetime | None
    ended_after: datetime | None
    ended_before: datetime | None


def statuses(filters: RunFilter) -> tuple[str, ...] | None:
    """The statuses that are named; None for all of them."""
    status = filters.get("status")
    return tuple(status.split(",") if isinstance(status, str) else status) if status is not None else None


def possible_statuses(filters: RunFilter) -> tuple[str, ...] | None:
    """Return the statuses that a run can have that fits all conditions; None for all statuses."""
    named = statuses(filters)
    possible = [str(status) for status in RunStatus] if named is None else [*dict.fromkeys(named)]
    reason, ended = filters.get("stop_reason"), {str(status) for status in RunStatus if status.terminal}
    if reason is not None:
        of_reason = {str(stop_reason.status) for stop_reason in StopReason if stop_reason == reason}
        possible = [status for status in possible if status in of_reason]
    if filters.get("error_class") or filters.get("error_code"):
        possible = [status for status in possible if status == RunStatus.FAILED]
    if filters.get("ended_after") or filters.get("ended_before") or filters.get("retried"):
        possible = [status for status in possible if status in ended]
    return None if len(possible) == len(RunStatus) else tuple(possible)


def admits(filters: RunFilter, run: Run) -> bool:
    """Tell whether ``run`` fits."""
    named, tag, tool = statuses(filters), filters.get("tag"), filters.get("tool")
    error: Mapping[str, Any] = run.error or {}
    retried, metadata = filters.get("retried"), filters.get("metadata") or {}
    return (
        (named is None or run.status in named)
        and filters.get("stop_reason") in (None, run.stop_reason)
        and filters.get("conversation_id") in (None, run.conversation_id)
        and filters.get("parent") in (None, run.parent and run.parent.run_id)
        and (tag is None or tag in run.tags)
        and metadata.items() <= run.metadata.items()
        and filters.get("submitted_by") in (None, run.submitted_by)
        and filters.get("agent") in (None, run.agent.name, *referred(run.agent))
        and filters.get("provider") in (None, run.model.partition("/")[0])
        and filters.get("model") in (None, run.model)
        and (
            tool is None
            or tool in run.agent.tools
            or tool in [client_tool.name for client_tool in run.agent.client_tools]
        )
        and filters.get("error_class") in (None, error.get("class"))
        and filters.get("error_code") in (None, error.get("code"))
        and retried in (None, run.retried_as is not None)
        and _between(filters.get("created_after"), run.times.created_at, filters.get("created_before"))
        and _between(filters.get("ended_after"), run.times.ended_at, filters.get("ended_before"))
    )


def _between(after: datetime | None, moment: datetime | None, before: datetime | None) -> bool:
    if after is None and before is None:
        return True
    return moment is not None and (after is None or moment > after) and (before is None or moment < before)
