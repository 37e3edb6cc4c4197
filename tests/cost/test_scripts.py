"""The work of every script grows at most as what it is given does."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from palaver.config.settings import Settings
from palaver.schemas.models import Message, ToolCall, Usage
from palaver.steps.leases import Lease, OfferedPlace
from palaver.steps.verdicts import Continue, ToolOutcome
from palaver.store import Store
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting.additions import all_scripts
from palaver.vocabulary.step_kinds import RECOVERED
from tests.contract.store_driver import StoreDriver, calls
from tests.cost.case import Case
from tests.cost.cases import CASES
from tests.cost.meters import EVERY, Commands, fake, watch
from tests.tiers import sample
from tests.unit.api_world import SETTINGS

STEEPEST = 2.3
"""How much more the second doubling may add than the first: a line adds 2 times as much, a square 4 times."""
SLACK = 0.02
"""Of the whole, that may come of where pages begin. The meter counts in steps, of which one more is nothing either."""

MOST_COMMANDS: Final = {"claim": 14, "settle": 31}
"""Of the scripts of a model step with one inline call, in the middle of its run (ADR 0006); with a price and
the turns of tenants (ADR 0094), and a line for statistics (ADR 0042)."""
IN_PLACE: Final = 33
"""Of both in one, where the worker goes on with the run (ADR 0027)."""
TOOL_STEP: Final = {"claim": 14, "settle": 29}
"""Of the scripts of a model step with a tool step behind it, which each of them is called for: at most."""


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


@pytest.mark.parametrize("tenant", ["", "k7m2qx"], ids=["default tenant", "another tenant"])
async def test_the_scripts_of_an_ordinary_step_send_few_commands(tenant: str) -> None:
    async with fake(Commands) as (redis, meter):
        store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0"))
        with within(Reach(tenant)):
            _, lease = await StoreDriver(store, redis).begin()
        usage = Usage(input_tokens=700, output_tokens=40, model_calls=1, cost_usd=0.001)
        call = ToolCall(id="c1", name="inline", arguments="{}")
        result = Message(role="tool", call_id=call.id, name=call.name, content="42")
        verdict = Continue(Message(role="assistant", tool_calls=(call,)), (ToolOutcome(result),), usage=usage)
        delivery = (await store.steps.settle(lease, verdict)).deliveries[0]
        costs = watch(store, meter())
        again = await store.steps.claim(
            delivery.run_id,
            delivery.conversation_id,
            delivery.step,
            queues=(delivery.queue.removesuffix(RECOVERED),),
            worker="w1",
            nonce="2",
            known=lease.log.position,
            known_at=lease.log.position_at,
        )
        assert isinstance(again, Lease)
        (third,) = (await store.steps.settle(again, verdict)).deliveries
        delivered = dict(costs.of)
        lease = await StoreDriver(store, redis).claim(third)
        place = OfferedPlace("w1", "n", 30.0, lease.log.position, lease.log.position_at)
        assert (await store.steps.settle(lease, verdict, place=place)).following is not None
    # Conversations of other tenants are in two lists by when something last happened to them.
    more = 1 if tenant else 0
    assert all(delivered[name] <= most + more for name, most in MOST_COMMANDS.items()), delivered
    assert costs.of["settle"] <= IN_PLACE + more, costs.of


@pytest.mark.parametrize("tenant", ["", "k7m2qx"], ids=["default tenant", "another tenant"])
async def test_the_scripts_of_a_tool_step_send_few_commands(tenant: str) -> None:
    async with fake(Commands) as (redis, meter):
        store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0"))
        driver = StoreDriver(store, redis)
        with within(Reach(tenant)):
            _, lease = await driver.begin()
        usage = Usage(input_tokens=700, output_tokens=40, model_calls=1, cost_usd=0.001)
        asked = replace(calls("c1"), usage=usage)
        for _ in range(2):
            costs = watch(store, meter())
            (due,) = (await store.steps.settle(lease, asked)).deliveries
            (due,) = (await driver.answer(await driver.claim(due))).deliveries
            lease = await driver.claim(due, known=lease.log.position)
    more = 1 if tenant else 0
    assert all(costs.of[name] <= most + more for name, most in TOOL_STEP.items()), costs.of
