"""The times of a run: when it may begin, and by when it must have begun or ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from palaver.errors import FieldError
from palaver.schemas.models import Retry, Submission

_FARTHEST: Final = timedelta(days=366)
"""The farthest time from now: a typing error in a year is likelier than a run that takes one."""


def time_faults(body: Submission | Retry) -> Iterator[FieldError]:
    """Yield the faults of times: without a zone, too far away, or in no order that a run can keep to."""
    times = {name: getattr(body, name, None) for name in ("start_after", "start_by", "deadline")}
    yield from _time_faults({name: time for name, time in times.items() if time is not None})
    if isinstance(body, Submission) and body.start_after is not None and body.on_conflict != "enqueue":
        yield _invalid("start_after", "goes with on_conflict enqueue only: leave one of the two out")


def _time_faults(times: dict[str, datetime]) -> Iterator[FieldError]:
    now = datetime.now(UTC)
    for name, time in times.items():
        if time.tzinfo is None:
            yield _invalid(name, "needs a time zone, such as a Z at its end")
            return
        # Whether it has passed is the store's to say, by its own clock; what passed long ago has by any.
        if name != "start_after" and now - time > _FARTHEST:
            yield _invalid(name, "is in the past")
        elif abs(time - now) > _FARTHEST:
            yield _invalid(name, f"is more than {_FARTHEST.days} days away")
    for name in ("start_by", "deadline"):
        if "start_after" in times and name in times and times["start_after"] >= times[name]:
            yield _invalid("start_after", f"must be before {name}")


def _invalid(name: str, why: str) -> FieldError:
    return FieldError(f"/{name}", "invalid_time", why)
