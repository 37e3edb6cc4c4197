"""What a tenant has of batches, at an API: tests of the core ask for it."""

from __future__ import annotations

from typing import Any

from features.batches import batch_keys
from features.batches.runner import BatchRunner
from tests.unit.api_world import AGENT, World
from tests.unit.two_tenants import CANARY


async def furnish(api: World, who: str) -> dict[str, list[str]]:
    """A batch of one item with the canary."""
    asked = {"agents": [{**AGENT, "instructions": CANARY}], "items": [{"input": CANARY}], "name": CANARY}
    return {"batch": [(await api.client.post("/v1/batches", json=asked)).json()["id"]]}


async def enlist(api: World) -> dict[str, str]:
    """A batch of two items that were begun."""
    asked = {"agents": [AGENT], "items": [{"input": "one"}, {"input": "two"}]}
    batch_id = (await api.client.post("/v1/batches", json=asked)).json()["id"]
    await BatchRunner(api.app.state.backend).look()
    return {"batch_id": batch_id}


async def tidy(redis: Any, tag: str) -> None:
    """Forget them: else one of many would be told that there are too many."""
    await redis.delete(batch_keys.batches(tag))


async def seen(api: World) -> dict[str, Any]:
    """The items of batches with the canary."""
    listed = (await api.client.get("/v1/batches")).json()["data"]
    return {each["id"]: each["items"] for each in listed if each["name"] == CANARY}
