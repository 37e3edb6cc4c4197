"""What one tenant has is not shown to another one by OpenHands' routes, though both call it the same."""

from __future__ import annotations

import pytest

from features.openhands.tests.cases import PREFIX
from tests.unit.two_tenants import TENANTS, asking_as, furnish, tenants


@pytest.mark.slow
async def test_lists_and_counts_have_what_is_ones_own() -> None:
    async with tenants() as api:
        has = {who: await furnish(api, who) for who in TENANTS}
        for who, own in has.items():
            with asking_as(api, who):
                assert (await api.client.get(f"{PREFIX}/count")).json() == len(own.conversations) == 3
                found = (await api.client.get(f"{PREFIX}/search")).json()["items"]
                assert {each["id"] for each in found} == {
                    each for each in own.names if each.count("-") == 4 and not each.startswith("canary")
                }
                assert (await api.client.get(f"{PREFIX}/search?limit=1")).json()["next_page_id"]


async def test_two_tenants_may_call_a_conversation_the_same() -> None:
    async with tenants() as api:
        number = "12345678-1234-4234-8234-123456789abc"
        for who in ("acme", "globex"):
            with asking_as(api, who):
                answer = await api.client.post("/v1/conversations", json={"id": number, "title": who})
                assert answer.status_code == 201
                assert (await api.client.get(f"{PREFIX}/{number}")).json()["title"] == who
