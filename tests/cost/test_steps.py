"""What a whole step costs Redis is written down: a change that makes it dearer, or cheaper, says so in its diff.

`steps.json` has for each way of a step, and each script in it, the commands that it sends, and its work in Lua as
`meters.Counter` weighs it. Neither depends on the machine. With REWRITE_PAGES=1 in the environment the file is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from fakeredis import FakeServer

from palaver.config.settings import Settings
from palaver.schemas.models import Message, ToolCall, Usage
from palaver.steps.leases import Lease, OfferedPlace
from palaver.steps.verdicts import Continue, ToolOutcome
from palaver.store import Store
from palaver.store.redis.reach import Reach, within
from tests.contract.store_driver import StoreDriver, calls
from tests.cost.meters import EVERY, Commands, Counter, Meter, fake, watch

TABLE: Final = Path(__file__).with_name("steps.json")
MOST: Final = 0.03
"""Of its work, that a script may differ without a word, beside the step that the meter counts in. Its commands are to
be the same."""
METERS: Final[Mapping[str, Callable[[FakeServer], Meter]]] = {"commands": Commands, "work": Counter}
USED: Final = Usage(input_tokens=700, output_tokens=40, model_calls=1, cost_usd=0.001)
Step = Callable[[StoreDriver, Lease], Awaitable[Lease]]
"""From the lease of a model step to that of the next one."""


def _place(lease: Lease, number: int, queues: str = "model") -> OfferedPlace:
    known = lease.log
    return OfferedPlace("w1", f"{lease.step} {number}", 30.0, known.position, known.position_at, room=9, queues=queues)


def _with_inline_tool() -> Continue:
    call = ToolCall(id="c1", name="inline", arguments="{}")
    result = Message(role="tool", call_id=call.id, name=call.name, content="42")
    return Continue(Message(role="assistant", tool_calls=(call,)), (ToolOutcome(result),), usage=USED)


async def _inline(driver: StoreDriver, lease: Lease) -> Lease:
    settled = await driver.store.steps.settle(lease, _with_inline_tool(), place=_place(lease, 1))
    return settled.following[0]


async def _inline_delivered(driver: StoreDriver, lease: Lease) -> Lease:
    (due,) = (await driver.store.steps.settle(lease, _with_inline_tool())).deliveries
    return await driver.claim(due, known=lease.log.position)


async def _on_the_loop(driver: StoreDriver, lease: Lease) -> Lease:
    both = partial(_place, lease, queues="model tools")
    asks = replace(calls("c1", at_hand=("c1",)), usage=USED)
    (tool,) = (await driver.store.steps.settle(lease, asks, place=both(1))).following
    return (await driver.answer(tool, place=both(2))).following[0]


async def _in_a_child(driver: StoreDriver, lease: Lease) -> Lease:
    (due,) = (await driver.store.steps.settle(lease, replace(calls("c1"), usage=USED))).deliveries
    (due,) = (await driver.answer(await driver.claim(due))).deliveries
    return await driver.claim(due, known=lease.log.position)


async def _submit(driver: StoreDriver, lease: Lease) -> Lease:
    await driver.submit()
    return lease


WAYS: Final[Mapping[str, Step]] = {
    "a tool within the step, which goes on in place": _inline,
    "a tool within the step, each step delivered": _inline_delivered,
    "a tool step on the loop of the model's, in place": _on_the_loop,
    "a tool step in a child": _in_a_child,
    "a run is submitted": _submit,
}


async def _costs(step: Step, tenant: str, meter_of: Callable[[FakeServer], Meter]) -> Mapping[str, float]:
    """Of each script, in the third step of a run."""
    async with fake(meter_of) as (redis, meter):
        driver = StoreDriver(Store(redis, Settings(redis_url="redis://127.0.0.1:1/0")), redis)
        with within(Reach(tenant)):
            _, lease = await driver.begin()
            for _ in range(2):
                lease = await step(driver, lease)
            costs = watch(driver.store, meter())
            await step(driver, lease)
    return costs.all_of


@pytest.mark.parametrize("tenant", ["", "k7m2qx"], ids=["default tenant", "another tenant"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_step_costs_what_is_written_down(way: str, tenant: str) -> None:
    row = f"{way}; another tenant" if tenant else way
    found: dict[str, dict[str, int]] = {}
    for what, meter_of in METERS.items():
        for script, cost in (await _costs(WAYS[way], tenant, meter_of)).items():
            found.setdefault(script, {})[what] = round(cost)
    if os.environ.get("REWRITE_PAGES"):
        table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
        TABLE.write_text(json.dumps({**table, row: found}, indent=2) + "\n")
        return
    kept = json.loads(TABLE.read_text())[row]
    assert found.keys() == kept.keys()
    for script, now in found.items():
        was = kept[script]
        change = f"{row}: {script} takes {now}, and took {was}; if it is to, REWRITE_PAGES=1 writes that down"
        assert now["commands"] == was["commands"], change
        assert abs(now["work"] - was["work"]) <= MOST * was["work"] + EVERY, change


def test_all_rows_are_of_a_way() -> None:
    rows = {row.removesuffix("; another tenant") for row in json.loads(TABLE.read_text())}
    assert rows == WAYS.keys()
