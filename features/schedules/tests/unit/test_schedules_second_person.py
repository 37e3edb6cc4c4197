"""Who asks for a payment by a schedule does not approve it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.test_api_second_person import AGENT, PAY, Office, office


@pytest.fixture
async def desk() -> AsyncIterator[Office]:
    async with office() as made:
        yield made


async def test_who_put_a_schedule_and_who_triggers_it(desk: Office) -> None:
    planned = {"every": 3600, "run": {"agent": AGENT, "input": PAY}}
    await desk.have("ann", "PUT", "/v1/schedules/daily", planned)
    run = await desk.have("bob", "POST", "/v1/schedules/daily/trigger")
    await desk.check(await desk.pay(run), none_of="ann bob", but="cid")


async def test_a_tick_is_of_who_changed_the_schedule_last(desk: Office) -> None:
    for name in ("bob", "ann"):
        await desk.have(
            name, "PUT", "/v1/schedules/daily", {"every": 3600, "run": {"agent": AGENT, "input": f"{PAY} {name}"}}
        )
    desk.clock.now += 3700
    await desk.look()
    (run,) = await desk.runs()
    await desk.check(await desk.pay(run), none_of="ann", but="bob")


async def test_who_resumed_a_schedule_until_another_one_puts_it(desk: Office) -> None:
    await desk.have("bob", "PUT", "/v1/schedules/daily", {"every": 3600, "run": {"agent": AGENT, "input": PAY}})
    for verb in ("pause", "resume"):
        await desk.have("ann", "POST", f"/v1/schedules/daily/{verb}")
    desk.clock.now += 3700
    await desk.look()
    await desk.check(await desk.pay((await desk.runs())[0]), none_of="ann bob", but="cid")
    await desk.have("bob", "PUT", "/v1/schedules/daily", {"every": 3600, "run": {"agent": AGENT, "input": "hello"}})
    await desk.have("bob", "POST", f"/v1/runs/{(await desk.runs())[0]['id']}/cancel")
    desk.clock.now += 3700
    await desk.look()
    await desk.check(await desk.pay((await desk.runs())[0]), none_of="bob", but="ann")
