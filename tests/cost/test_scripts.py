"""The work of every script grows at most as what it is given does."""

from __future__ import annotations

import pytest

from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.scripting.additions import all_scripts
from tests.contract.store_driver import StoreDriver
from tests.cost.case import Case
from tests.cost.cases import CASES
from tests.cost.meters import EVERY, fake, watch
from tests.tiers import sample
from tests.unit.api_world import SETTINGS

STEEPEST = 2.3
"""How much more the second doubling may add than the first: a line adds 2 times as much, a square 4 times."""
SLACK = 0.02
"""Of the whole, that may come of where pages begin. The meter counts in steps, of which one more is nothing either."""


async def _cost(case: Case, size: int) -> float:
    async with fake() as (redis, meter):
        store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", secret_key=SETTINGS.secret_key))
        act = await case.prepare(StoreDriver(store, redis), size)
        costs = watch(store, meter())
        await act()
    return costs.of[case.script]


@pytest.mark.parametrize("case", sample(CASES, 30), ids=lambda case: f"{case.script}: {case.what}")
async def test_twice_as_much_is_at_most_twice_the_work(case: Case) -> None:
    some, twice, more = [await _cost(case, case.least * times) for times in (1, 2, 4)]
    assert more - twice <= STEEPEST * max(0, twice - some) + SLACK * more + EVERY, (some, twice, more)


def test_every_script_has_a_case() -> None:
    assert {case.script for case in CASES} == {script.name for script in all_scripts()}
