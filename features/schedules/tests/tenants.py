"""What a tenant has of schedules, at an API: tests of the core ask for it."""

from __future__ import annotations

from typing import Any

from features.schedules import schedule_keys
from tests.unit.api_world import AGENT, World
from tests.unit.two_tenants import CANARY


async def furnish(api: World, who: str) -> dict[str, list[str]]:
    """A schedule that begins runs with the canary."""
    await _keep(api, f"schedule-of-{who}", {"agent": {**AGENT, "instructions": CANARY}, "input": CANARY})
    return {"schedule": [f"schedule-of-{who}"]}


async def enlist(api: World) -> dict[str, str]:
    """Two of them."""
    for name in ("one", "two"):
        await _keep(api, name, {"agent": AGENT, "input": "hello"})
    return {"name": "two"}


async def _keep(api: World, name: str, run: dict[str, Any]) -> None:
    answer = await api.client.put(f"/v1/schedules/{name}", json={"every": 3600, "run": run})
    assert answer.status_code == 201, answer.text


def own_keys(tag: str) -> tuple[str, ...]:
    """The beginnings of keys of schedules."""
    return schedule_keys.schedule(tag, ""), schedule_keys.schedule_ticks(tag, "")
