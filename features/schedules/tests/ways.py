"""Ways to ask for a payment by a schedule."""

from __future__ import annotations

from typing import Any, Final

from tests.unit.asking import Ways
from tests.unit.test_api_second_person import AGENT, PAY, Office

WAYS: Final = Ways()
way = WAYS.by


PLANNED: Final = {"every": 3600, "run": {"agent": AGENT, "input": PAY}}


@way("PUT /v1/schedules/{name}")
async def _plan(desk: Office) -> dict[str, Any]:
    await desk.have("ann", "PUT", "/v1/schedules/daily", PLANNED)
    return await desk.have("bob", "POST", "/v1/schedules/daily/trigger")


@way("POST /v1/schedules/{name}/trigger")
async def _trigger(desk: Office) -> dict[str, Any]:
    await desk.have("bob", "PUT", "/v1/schedules/daily", PLANNED)
    return await desk.have("ann", "POST", "/v1/schedules/daily/trigger")


@way("POST /v1/schedules/{name}/resume")
async def _resume(desk: Office) -> dict[str, Any]:
    await desk.have("bob", "PUT", "/v1/schedules/daily", PLANNED)
    await desk.have("bob", "POST", "/v1/schedules/daily/pause")
    await desk.have("ann", "POST", "/v1/schedules/daily/resume")
    desk.clock.now += 3700
    await desk.look()
    return (await desk.runs())[0]
