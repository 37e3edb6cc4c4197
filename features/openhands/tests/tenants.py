"""What a tenant has of OpenHands' dialect, at an API: tests of the core ask for it."""

from __future__ import annotations

from typing import Final

from features.openhands.tests.cases import PREFIX
from features.openhands.tests.unit.test_openhands_agents import AGENT
from tests.unit.api_world import World
from tests.unit.two_tenants import CANARY

CAUSES: Final = (f"POST {PREFIX}/{{conversation}}/events",)


async def furnish(api: World, who: str) -> dict[str, list[str]]:
    """A conversation with the canary, whose run is about to begin."""
    client = api.client
    body = {"agent": AGENT, "client_tools": [], "tags": {"t": CANARY}}
    talk = (await client.post(PREFIX, json=body)).json()["id"]
    said = {"role": "user", "content": [{"type": "text", "text": CANARY}], "run": True}
    answer = await client.post(f"{PREFIX}/{talk}/events", json=said)
    assert answer.status_code == 200, answer.text
    events = (await client.get(f"{PREFIX}/{talk}/events/search")).json()["items"]
    return {"number": [talk], "event": [events[0]["id"]]}
