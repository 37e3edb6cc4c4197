"""What a request costs grows at most as its size does, for the worst requests that every route admits."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.cost.handlers import count
from tests.cost.openai_requests import EVERY as CASES
from tests.cost.requests import ROUTES, Case
from tests.feature_cases import brought_to_tests
from tests.tiers import sample

ALL = (*CASES, *(case for cases in brought_to_tests("REQUESTS").values() for case in cases))
LINEAR = 2.3
"""Twice the calls for twice the size, and a little for what comes in steps, such as a page more."""
BESIDE = 1000
"""Calls that loops of the process, and the collection of garbage, may make meanwhile."""


def test_every_route_has_a_case() -> None:
    assert {case.route for case in ALL} == ROUTES


@pytest.mark.parametrize("case", sample(ALL, 40), ids=lambda case: f"{case.route} {case.what}")
async def test_twice_the_size_costs_twice_as_much_at_most(case: Case) -> None:
    costs = [await count(case, case.most_counted // part) for part in (4, 2, 1)]
    assert len({cost.status for cost in costs}) == 1, [cost.status for cost in costs]
    assert costs[0].status < 500
    for less, more in pairwise(costs):
        assert more.calls < LINEAR * less.calls + BESIDE, [cost.calls for cost in costs]
