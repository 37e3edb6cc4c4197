"""What a run is doing now, in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from palaver.cli.text import clock, one_line, seconds
from palaver.schemas.current_steps import CurrentStep
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import StepState

_SILENT: Final = 10.0
"""Seconds without more of an answer after which that is said; leases are renewed, and this is told, every 5."""


def doing(run: Run) -> str:
    """What it is busy with: the step that a worker has for longest, and how many more there are."""
    if not run.current_steps:
        return ""
    more = run.current_step_count - 1
    return f"{_told(run.current_steps[0])}{f' (and {more} more)' if more else ''}"


def doing_lines(run: Run) -> Iterator[str]:
    """A line for each open step, and how many are left out."""
    yield from map(_told, run.current_steps)
    if left := run.current_step_count - len(run.current_steps):
        yield f"… and {left} more"


def _told(step: CurrentStep) -> str:
    """``calling fake/hang for 12 s (attempt 3 of 5, last: timeout first_token_timeout); this attempt ends in 48 s at
    the latest``"""
    name, now = one_line(step.name), datetime.now(UTC)
    since = "" if step.since is None else f" for {_after(step.since, now)}"
    match step.state:
        case StepState.LEASED:
            what = f"{'calling' if step.kind == 'model' else 'running'} {name}{since}"
        case StepState.READY:
            what = f"{name} waits for a worker{since}"
        case StepState.LATER:
            again = "" if step.again_at is None else f" until {clock(step.again_at)}"
            what = f"{name} waits{again}"
        case StepState.AWAITING:
            what = f"{name} waits for somebody{since}"
        case _:
            what = f"{name} is paused{since}"
    facts = "; ".join(filter(None, (_came(step, now), _ends(step, now))))
    return f"{what}{_attempt(step)}{f'; {facts}' if facts else ''}"


def _attempt(step: CurrentStep) -> str:
    failed = step.last_failure
    if step.attempt == 1 and failed is None:
        return ""
    of = "" if step.max_attempts is None else f" of {step.max_attempts}"
    # Some codes are the class once more.
    named = dict.fromkeys((one_line(failed.error_class), one_line(failed.code))) if failed else ()
    last = f", last: {' '.join(named)}" if named else ""
    return f" (attempt {step.attempt}{of}{last})"


def _came(step: CurrentStep, now: datetime) -> str:
    if step.progress is None:
        return ""
    if not step.progress.bytes:
        return "nothing has come yet"
    came = f"{step.progress.bytes:,} bytes and {step.progress.characters:,} characters of text have come"
    if (now - step.progress.at).total_seconds() > _SILENT:
        came += f", the last {_after(step.progress.at, now)} ago"
    return came


def _ends(step: CurrentStep, now: datetime) -> str:
    if step.gives_up_at is None:
        return ""
    # What becomes of the step then, its policy says: there may be further attempts.
    what = "this attempt ends" if step.state is StepState.LEASED else "given up"
    return f"{what} in {_after(now, step.gives_up_at)} at the latest"


def _after(begin: datetime, end: datetime) -> str:
    return seconds(round(max(0.0, (end - begin).total_seconds())))
