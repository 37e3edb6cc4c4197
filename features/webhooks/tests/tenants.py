"""What a tenant has of webhooks, at an API: tests of the core ask for it."""

from __future__ import annotations

from features.webhooks.deliveries import Deliveries
from features.webhooks.delivery_records import DeliveryRecord
from features.webhooks.webhooks import Webhooks
from tests.unit.api_world import World
from tests.unit.two_tenants import CANARY, TENANTS


async def furnish(api: World, who: str) -> dict[str, list[str]]:
    """A webhook with the canary."""
    tag = TENANTS[who]
    made = await api.store.part(Webhooks).create(tag, "https://example.org/hook", description=CANARY)
    return {"webhook": [made.webhook.id]}


async def enlist(api: World) -> dict[str, str]:
    """Two deliveries of one of them."""
    (hook, *_) = await api.store.part(Webhooks).list("")
    records = [DeliveryRecord(f"msg_{n}", "run.failed", 1, "pending", 0, {}, ()) for n in range(2)]
    assert await api.store.part(Deliveries).queue(hook.id, records) == 2
    return {"webhook_id": hook.id}
