"""The ticks of a schedule: pure arithmetic, in milliseconds since the epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from itertools import islice, pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from palaver.errors import Refused
from palaver.schemas.schedules import Timing
from palaver.vocabulary.durations import names_a_zone
from palaver.vocabulary.limits import limit_of

from .contract import NextTick

GRACE: Final = 60_000
"""A tick that is carried out later than this was missed."""
_FIELDS: Final = 5
_NO_ZONE: Final = "is not the name of a time zone, such as Europe/Berlin"
_WINDOWS: Final = tuple(hours * 3_600_000 for hours in (1, 26, 24 * 40, 24 * 400, 24 * 366 * 9))
"""The newest tick of the past is looked for in the last hour, then in the last day, and so on: the ticks of the first
of these that has any are looked at one by one, and they are no more than in any that long."""


class TickPlan(NamedTuple):
    """The tick to carry out now, and the next one."""

    tick: int
    missed_since: int | None
    """The first tick before it that was not carried out."""
    following: NextTick


class TickTimes:
    """The ticks of one schedule."""

    def __init__(self, timing: Timing, seed: str) -> None:
        """``seed`` decides how late each tick is within the jitter.

        Raises:
            Refused: the times are none.
        """
        self._every = None if timing.every is None else timing.every * 1000
        self._cron = timing.cron
        self._zone = _zone(timing.timezone)
        self._jitter = timing.jitter * 1000
        self._seed = seed
        if (timing.cron is None) == (timing.every is None):
            raise Refused.at("/cron", "or every: a schedule has one of the two")
        if timing.every is not None and timing.timezone != "UTC":
            raise Refused.at("/timezone", "goes with cron: an interval is the same in every zone")
        if timing.cron is not None and len(timing.cron.split()) != _FIELDS:
            raise Refused.at("/cron", "has five fields: minute, hour, day of the month, month, day of the week")
        next(self.behind(0), None)

    def behind(self, moment: int) -> Iterator[int]:
        """Yield the ticks after a moment, in order."""
        if self._every is not None:
            while True:
                moment += self._every - moment % self._every
                yield moment
        # Not at the top: it is for those who have such a schedule.
        from cronsim import CronSim, CronSimError

        try:
            ticks = CronSim(self._cron or "", datetime.fromtimestamp(moment / 1000, self._zone))
        except CronSimError as error:
            raise Refused.at("/cron", f"cannot be read: {error}") from None
        for tick in ticks:
            # In the hour that comes twice, it begins with the first of the two.
            at = int(tick.timestamp() * 1000)
            if at > moment:
                moment = at
                yield at

    def first(self, moment: int) -> NextTick:
        """Return the first tick after a moment."""
        tick = next(self.behind(moment), None)
        return NextTick(tick, None if tick is None else self.at(tick))

    def at(self, tick: int) -> int:
        """The time at which a tick is due, with its jitter."""
        if not self._jitter:
            return tick
        digest = hashlib.sha256(f"{self._seed} {tick}".encode()).digest()
        return tick + int.from_bytes(digest[:8]) % (self._jitter + 1)

    def plan(self, due: int, now: int) -> TickPlan:
        """Return which tick to carry out ``now``, when the one ``due`` is due: the newest that has come."""
        tick = self._newest(due, now)
        return TickPlan(tick, due if tick > due else None, self.first(tick))

    def _newest(self, due: int, now: int) -> int:
        if self._every is not None:
            return max(due, now - now % self._every)
        for window in _WINDOWS:
            begin = max(due, now - window)
            newest = max(self._until(begin, now), default=None)
            if newest is not None:
                return newest
            if begin == due:
                break
        return due

    def _until(self, begin: int, now: int) -> Iterator[int]:
        for tick in self.behind(begin):
            if tick > now:
                return
            yield tick

    def check_new(self, now: int) -> None:
        """Check a schedule that is put: its zone, and how fast the next ticks follow each other.

        Raises:
            Refused: the zone is none of a place, there is no tick, they are too many, or the jitter is longer than the
                time between two.
        """
        if not names_a_zone(self._zone.key):
            raise Refused.at("/timezone", _NO_ZONE)
        ticks = list(islice(self.behind(now), 10))
        if not ticks:
            raise Refused.at("/cron", "never comes")
        shortest = min((later - tick for tick, later in pairwise(ticks)), default=None)
        if shortest is None:
            return
        if shortest < 60_000 // limit_of("schedule_rate"):
            raise Refused.at("/every", f"is shorter than {60 // limit_of('schedule_rate')} seconds")
        if self._jitter >= shortest:
            raise Refused.at("/jitter", "must be shorter than the time between two ticks")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Refused.at("/timezone", _NO_ZONE) from None
