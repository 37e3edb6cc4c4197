"""OpenHands' dialect below a path of another application, by a server of uvicorn as it comes."""

from __future__ import annotations

import asyncio

import orjson
from websockets.asyncio.client import connect

from features.openhands.tests.unit.test_openhands_agents import AGENT
from tests.unit.mounted_site import served, site
from tests.waiting import PATIENCE


async def test_a_socket_tells_who_the_application_knows() -> None:
    async with site() as shop, served(shop.client._transport.app) as address:  # type: ignore[attr-defined]
        shop.user("ann")
        made = await shop.client.post("/agents/openhands/api/conversations", json={"agent": AGENT})
        assert made.status_code == 201, made.text
        url = f"ws://{address}/agents/openhands/sockets/events/{made.json()['id']}"
        async with connect(url, additional_headers={"cookie": "user=ann"}, proxy=None) as socket:
            event = orjson.loads(await asyncio.wait_for(socket.recv(), PATIENCE))
        assert (event["kind"], event["key"]) == ("ConversationStateUpdateEvent", "full_state")
