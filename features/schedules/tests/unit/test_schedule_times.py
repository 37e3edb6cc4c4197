"""The times of schedules: cron in a time zone, intervals, jitter, and which tick is carried out when some are late."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from features.schedules.times import TickTimes
from palaver.errors import Refused
from palaver.schemas.schedules import Timing

BERLIN = ZoneInfo("Europe/Berlin")


def ms(*when: int, zone: Any = BERLIN, fold: int = 0) -> int:
    return int(datetime(*when, tzinfo=zone, fold=fold).timestamp() * 1000)  # type: ignore[misc, arg-type]


def berlin(cron: str) -> TickTimes:
    return TickTimes(Timing(cron=cron, timezone="Europe/Berlin"), "x")


def shown(times: TickTimes, begin: int, number: int) -> list[str]:
    """Ticks in UTC: no hour of that comes twice or never."""
    return [f"{datetime.fromtimestamp(tick / 1000, UTC):%d.%H:%M}" for tick in islice(times.behind(begin), number)]


def test_a_time_that_does_not_exist_is_when_the_clock_goes_on() -> None:
    # On 2026-03-29 the clock goes from 2:00 to 3:00, which is 01:00 UTC.
    assert shown(berlin("30 2 * * *"), ms(2026, 3, 28, 0), 3) == ["28.01:30", "29.01:00", "30.00:30"]
    assert shown(berlin("0 2,3 * * *"), ms(2026, 3, 29, 0), 2) == ["29.01:00", "30.00:00"], "both are then: once"
    # What runs all the time has no hole, and no more of it.
    assert shown(berlin("30 * * * *"), ms(2026, 3, 29, 0), 4) == ["28.23:30", "29.00:30", "29.01:30", "29.02:30"]
    assert shown(berlin("*/30 2 * * *"), ms(2026, 3, 29, 0), 1) == ["30.00:00"]


def test_a_time_that_comes_twice_is_the_first_one() -> None:
    # On 2026-10-25 the clock goes from 3:00 back to 2:00, which is 01:00 UTC.
    daily = berlin("30 2 * * *")
    assert shown(daily, ms(2026, 10, 24, 12), 2) == ["25.00:30", "26.01:30"]
    assert shown(berlin("30 * * * *"), ms(2026, 10, 25, 1), 4) == ["24.23:30", "25.00:30", "25.01:30", "25.02:30"]
    # Whoever begins to count between the two finds the next day's, and not one that is over.
    between = ms(2026, 10, 25, 2, 10, fold=1)
    assert shown(daily, between, 2) == ["26.01:30", "27.01:30"]


def test_ticks_are_the_same_wherever_one_begins_to_count() -> None:
    for cron in ("30 2 * * *", "*/20 * * * *", "0 */2 * * *", "15 1-3 * * *", "5 2 25,29 3,10 *"):
        times = berlin(cron)
        for begin in (ms(2026, 3, 27, 0), ms(2026, 10, 23, 0)):
            whole = list(islice(times.behind(begin), 60))
            assert whole == sorted(set(whole)), cron
            for place, tick in enumerate(whole[:-1]):
                for moment in (tick, tick + 1, whole[place + 1] - 1):
                    assert next(times.behind(moment)) == whole[place + 1], (cron, place)


def test_an_interval_is_the_same_for_everybody() -> None:
    times = TickTimes(Timing(every=900), "x")
    assert shown(times, ms(2026, 3, 29, 0, 7, zone=UTC), 2) == ["29.00:15", "29.00:30"]
    assert next(times.behind(900_000)) == 1_800_000, "behind a tick comes the next"


def test_each_tick_has_a_jitter_of_its_own() -> None:
    times = TickTimes(Timing(every=60, jitter=30), "acme00/x")
    late = [times.at(tick) - tick for tick in islice(times.behind(0), 200)]
    assert late == [times.at(tick) - tick for tick in islice(times.behind(0), 200)]
    assert 0 <= min(late) < 2_000
    assert 28_000 < max(late) <= 30_000


def test_the_newest_of_several_is_carried_out() -> None:
    times, due, now = berlin("0 * * * *"), ms(2026, 10, 24, 22), ms(2026, 10, 25, 4, 20)
    plan = times.plan(due, now)
    assert (plan.tick, plan.missed_since, plan.following.tick) == (ms(2026, 10, 25, 4), due, ms(2026, 10, 25, 5))
    alone = times.plan(due, due + 59 * 60_000)
    assert (alone.tick, alone.missed_since) == (due, None)
    every = TickTimes(Timing(every=10), "x").plan(20_000, 10**12 + 7_000)
    assert (every.tick, every.missed_since, every.following.tick) == (10**12, 20_000, 10**12 + 10_000)


def test_years_that_were_missed_are_not_counted_one_by_one() -> None:
    began, now = time.process_time(), ms(2026, 11, 26, 12)
    for cron, due, newest in (
        ("* * * * *", ms(2016, 1, 1), now),
        ("0 5 29 2 *", ms(2016, 2, 29, 5), ms(2024, 2, 29, 5)),
        ("* * 1 1 *", ms(2016, 1, 1), ms(2026, 1, 1, 23, 59)),
    ):
        plan = berlin(cron).plan(due, now)
        assert (plan.tick, plan.missed_since) == (newest, due)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("timing", "pointer"),
    [
        (Timing(), "/cron"),
        (Timing(cron="* * * * *", every=60), "/cron"),
        (Timing(every=60, timezone="Europe/Berlin"), "/timezone"),
        (Timing(cron="* * * * *", timezone="Europe/Nowhere"), "/timezone"),
        (Timing(cron="* * * * *", timezone="../../etc/passwd"), "/timezone"),
        (Timing(cron="* * * * *", timezone="Europe"), "/timezone"),
        *(
            (Timing(cron="* * * * *", timezone=name), "/timezone")
            for name in (
                "Factory",
                "posixrules",
                "localtime",
                "right/UTC",
                "right/Europe/Berlin",
                "posix/UTC",
                "zone.tab",
                "leapseconds",
            )
        ),
        (Timing(cron="*/5 * * * * *"), "/cron"),
        (Timing(cron="60 * * * *"), "/cron"),
        (Timing(cron="0 0 31 2 *"), "/cron"),
        (Timing(cron="x x x x x"), "/cron"),
        (Timing(every=60, jitter=60), "/jitter"),
        (Timing(cron="*/10 * * * *", jitter=600), "/jitter"),
    ],
)
def test_what_cannot_be_is_refused(timing: Timing, pointer: str) -> None:
    with pytest.raises(Refused) as refused:
        TickTimes(timing, "x").check_new(ms(2026, 11, 26, 12))
    assert [fault.pointer for fault in refused.value.faults] == [pointer]
