"""A worker notices when its loop stands still, and whether the garbage collector was the cause."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from palaver.telemetry.metrics import StopCause
from palaver.vocabulary.step_kinds import MODEL
from tests.waiting import aeventually
from workers.loops.stops import LoopStops, stops_noticed
from workers.steps import histograms as worker_histograms
from workers.steps.histograms import Histograms

Seen = list[tuple[StopCause, float]]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Loop:
    """A loop whose time is told."""

    def __init__(self) -> None:
        self.seen: Seen = []
        self.clock = Clock()
        self.stops = LoopStops(lambda cause, seconds: self.seen.append((cause, round(seconds, 6))), self.clock)

    def collect(self, seconds: float) -> None:
        self.stops.collecting("start", {"generation": 2})
        self.clock.now += seconds
        self.stops.collecting("stop", {"generation": 2})

    def turn(self, late: float = 0.0, collecting: tuple[float, ...] = ()) -> None:
        self.stops.wait()
        for seconds in collecting:
            self.collect(seconds)
        self.clock.now += 0.02 + late - sum(collecting)
        self.stops.turn(late)


def test_a_collection_is_told_by_itself_and_not_once_more_as_another_stop() -> None:
    loop = Loop()
    loop.turn(late=0.25, collecting=(0.2, 0.04))
    assert loop.seen == [("collection", 0.2), ("collection", 0.04)]


def test_what_is_left_of_a_late_turn_is_another_stop() -> None:
    loop = Loop()
    loop.turn(late=0.3, collecting=(0.2,))
    assert loop.seen == [("collection", 0.2), ("other", 0.1)]


def test_short_ones_are_none() -> None:
    loop = Loop()
    loop.turn(late=0.014, collecting=(0.005,))
    assert loop.seen == []


def test_a_collection_in_another_thread_while_the_loop_waits_is_one() -> None:
    loop = Loop()
    loop.turn(late=0.0, collecting=(0.018,))
    assert loop.seen == [("collection", 0.018)]


def test_a_long_one_has_a_line_and_many_have_one_together(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    with caplog.at_level(logging.WARNING):
        loop.turn(late=0.09)
        assert caplog.messages == []
        loop.turn(late=0.15, collecting=(0.12,))
        loop.turn(late=0.4)
        loop.turn(late=0.2)
        loop.clock.now += 10
        loop.turn()
        loop.clock.now += 10
        loop.turn()
    assert caplog.messages == [
        "the loop stood still for 120 ms (garbage collection)",
        "the loop stood still for 400 ms (code that did not wait, or a machine with too much to do), "
        "the longest of 2 stops",
    ]


async def test_a_real_loop_that_is_held_up_is_noticed() -> None:
    seen: Seen = []
    async with stops_noticed(lambda cause, seconds: seen.append((cause, seconds)), lambda: True):
        await asyncio.sleep(0.05)
        time.sleep(0.3)  # noqa: ASYNC251 what it must not do
        await aeventually(lambda: ("other", True) in {(cause, seconds >= 0.25) for cause, seconds in seen})


@pytest.mark.slow
async def test_a_real_collection_is_noticed() -> None:
    seen: Seen = []
    kept: list[Any] = [[[]] for _ in range(600_000)]
    async with stops_noticed(lambda cause, seconds: seen.append((cause, seconds)), lambda: True):
        gc.collect()
        await aeventually(lambda: "collection" in {cause for cause, _ in seen})
    assert len(kept) == 600_000
    assert not any(getattr(each, "__self__", None).__class__ is LoopStops for each in gc.callbacks)


def test_they_are_counted_and_the_longest_of_late_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    minute = 7
    monkeypatch.setattr(worker_histograms, "_minute", lambda: minute)
    histograms = Histograms(MODEL)
    assert _longest(histograms) == {"collection": 0.0, "other": 0.0}
    for cause, seconds in (("collection", 0.2), ("other", 0.03), ("collection", 0.05)):
        histograms.loop_stopped(cause, seconds)  # type: ignore[arg-type]
    assert _longest(histograms) == {"collection": 0.2, "other": 0.03}
    minute = 8
    histograms.loop_stopped("collection", 0.1)
    assert _longest(histograms) == {"collection": 0.2, "other": 0.03}
    minute = 9
    assert _longest(histograms) == {"collection": 0.1, "other": 0.0}
    assert 'palaver_loop_stop_seconds_bucket{cause="collection",le="0.05"} 1\n' in histograms.exposed()
    assert 'palaver_loop_stop_seconds_count{cause="collection"} 3\n' in histograms.exposed()


def _longest(histograms: Histograms) -> dict[str, float]:
    families = text_string_to_metric_families(histograms.exposed())
    samples = [sample for family in families for sample in family.samples]
    return {s.labels["cause"]: s.value for s in samples if s.name == "palaver_loop_longest_stop_seconds"}
