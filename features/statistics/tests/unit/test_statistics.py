"""Percentiles of histograms, and tallies: no store is needed to see that they are right."""

from __future__ import annotations

import random
from math import ceil

import orjson
import pytest

from features.statistics.histograms import EDGES, ERROR, bucket_of, percentile
from features.statistics.tallies import JournalLine, SpanTally
from features.statistics.windows import WINDOWS, Window
from palaver.vocabulary.limits import limit_of


@pytest.mark.parametrize("seed", range(20))
def test_a_percentile_is_off_by_no_more_than_it_says(seed: int) -> None:
    chance = random.Random(seed)
    times = [ceil(chance.lognormvariate(chance.uniform(1, 12), chance.uniform(0.1, 2))) for _ in range(1000)]
    times = [min(time, int(EDGES[-1])) for time in times]
    histogram: dict[int, int] = {}
    for time in times:
        histogram[bucket_of(time)] = histogram.get(bucket_of(time), 0) + 1
    for percent in (1, 50, 90, 99, 100):
        exact = sorted(times)[ceil(percent / 100 * len(times)) - 1]
        told = percentile(histogram, percent)
        assert told is not None
        assert abs(told / exact - 1) <= ERROR + 1e-9, (percent, told, exact)


def test_there_is_a_bucket_for_every_time() -> None:
    assert [bucket_of(ms) for ms in (-5, 0, 1)] == [0, 0, 0]
    assert all(EDGES[bucket_of(ms) - 1] < ms <= EDGES[bucket_of(ms)] for ms in range(2, 5000))
    assert bucket_of(10**15) == len(EDGES) - 1
    assert percentile({0: 3}, 99) == 1
    assert percentile({}, 50) is None


def a_call(model: str = "fake/echo", cost: str = "250") -> list[str]:
    return f"model done - 12 340 {model} 1 100 7 {cost}".split(" ")


def test_a_tally_is_stored_as_it_is() -> None:
    tally = SpanTally()
    for line in ("submitted ", "completed ", "failed timeout", "tool lost worker_lost 0 15000"):
        tally.add(JournalLine.of(f"1000@acme00: {line}".encode()).words)
    tally.add(a_call())
    tally.add(a_call(cost="-"))
    assert SpanTally.of_json(tally.to_json(9)) == (9, tally)
    assert tally.runs == {"submitted": 1, "completed": 1, "failed": 1}
    assert tally.run_errors == {"timeout": 1}
    assert tally.steps == {"tool lost": 1, "model done": 2}
    assert tally.step_errors == {"worker_lost": 1}
    assert tally.waited == {0: 1, bucket_of(12): 2}
    assert tally.called == {bucket_of(340): 2}
    numbers = {"calls": 2, "input_tokens": 200, "output_tokens": 14, "cost": 250, "unpriced_calls": 1}
    assert tally.models == {"fake/echo": numbers}


def test_a_tally_has_no_more_models_than_it_may_have() -> None:
    one, other, most = SpanTally(), SpanTally(), limit_of("statistics_models")
    for number in range(most + 5):
        one.add(a_call(f"fake/{number}"))
        other.add(a_call(f"fake/{most + 5 - number}"))
    one.merge(other)
    assert len(one.models) == most + 1
    assert sum(numbers["calls"] for numbers in one.models.values()) == 2 * (most + 5)
    assert sum(numbers["cost"] for numbers in one.models.values()) == 500 * (most + 5)


def test_a_tally_is_bounded() -> None:
    tally = SpanTally()
    for number in range(2000):
        times = f"{2 ** (number % 40)} {2 ** (number % 40)}"
        tally.add(f"model done - {times} fake/{number} 1 1000000 1000000 9999999".split(" "))
    assert len(tally.to_json(10**9)) < 4096
    assert orjson.loads(tally.to_json(1))["number"] == 1


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_spans_of_a_window_have_places_of_their_own(window: Window) -> None:
    numbers = range(29_000_000, 29_000_000 + window.spans + 1)
    assert len({window.place(number) for number in numbers}) == len(numbers)
    assert {window.place(number) for number in numbers} <= {*window.places}
