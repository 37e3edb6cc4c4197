"""What makes scripts of webhooks dear."""

from __future__ import annotations

from typing import Final

from features.webhooks import webhook_keys
from features.webhooks.bodies import WebhookChange
from features.webhooks.contract import AttemptOutcome, ForgetEvents, MarkRuns
from features.webhooks.deliveries import Deliveries
from features.webhooks.delivery_records import DeliveryRecord, RecordedAttempt
from features.webhooks.webhooks import Webhooks
from palaver.secrets.sealing import Sealer
from palaver.store.redis import keys
from tests.contract.store_driver import StoreDriver
from tests.cost.case import Act, Case


async def _with_deliveries(driver: StoreDriver, n: int) -> tuple[str, list[DeliveryRecord]]:
    """A webhook, and so many deliveries for it."""
    driver.store.part(Webhooks)._sealer = Sealer([bytes(range(32))])
    webhook = (await driver.store.part(Webhooks).create("", "https://example.org")).webhook.id
    records = [
        DeliveryRecord(f"msg_{number}", "run.failed", 1, "pending", 0, {"run_id": "x" * 500}, ()) for number in range(n)
    ]
    return webhook, records


async def _queue_deliveries(driver: StoreDriver, n: int) -> Act:
    webhook, records = await _with_deliveries(driver, n)
    return lambda: driver.store.part(Deliveries).queue(webhook, records)


async def _claim_delivery(driver: StoreDriver, n: int) -> Act:
    """Of those that are too old one look drops a part."""
    webhook, records = await _with_deliveries(driver, n)
    await driver.store.part(Deliveries).queue(webhook, records)
    of = webhook_keys.of_webhook(webhook)
    await driver.redis.zadd(of.listed, {record.id: 1 for record in records})
    return lambda: driver.store.part(Deliveries).claim(webhook)


async def _settle_attempt(driver: StoreDriver, n: int) -> Act:
    webhook, records = await _with_deliveries(driver, n)
    await driver.store.part(Deliveries).queue(webhook, records)
    lease = await driver.store.part(Deliveries).claim(webhook)
    assert lease is not None
    return lambda: driver.store.part(Deliveries).settle(
        lease, AttemptOutcome.DELIVERED, RecordedAttempt(1, 1, 204, None, "x" * 1024)
    )


async def _put_webhook(driver: StoreDriver, n: int) -> Act:
    webhook, records = await _with_deliveries(driver, n)
    await driver.store.part(Deliveries).queue(webhook, records)
    return lambda: driver.store.part(Webhooks).change(webhook, WebhookChange(enabled=True))


async def _remove_webhook(driver: StoreDriver, n: int) -> Act:
    webhook, records = await _with_deliveries(driver, n)
    await driver.store.part(Deliveries).queue(webhook, records)
    return lambda: driver.store.part(Webhooks).remove(webhook)


async def _mark_runs(driver: StoreDriver, n: int) -> Act:
    await driver.redis.hset(keys.caps("00"), mapping={f"@{number:06}:webhooks": number for number in range(n)})
    mark = MarkRuns(caps=keys.caps("00"), field="webhooks", mark=1, marked=True)
    return lambda: driver.store.scripts.run(mark)


async def _forget_events(driver: StoreDriver, n: int) -> Act:
    entries = [(await driver.redis.xadd(webhook_keys.outbox("00"), {"a": "b"})).decode() for _ in range(8 * n)]
    forget = ForgetEvents(
        outbox=webhook_keys.outbox("00"),
        outboxes=webhook_keys.outboxes("00"),
        outbox_name="outbox",
        entries=tuple(entries),
    )
    return lambda: driver.store.scripts.run(forget)


SCRIPTS: Final = (
    Case("queue_deliveries", "deliveries", _queue_deliveries, most=200),
    Case("claim_delivery", "deliveries that are too old", _claim_delivery, most=200),
    Case("settle_attempt", "deliveries beside it", _settle_attempt, most=200),
    Case("put_webhook", "deliveries", _put_webhook, most=200),
    Case("remove_webhook", "deliveries", _remove_webhook, most=200),
    Case("mark_runs", "tenants with webhooks", _mark_runs),
    Case("forget_events", "8 events", _forget_events, most=12),
)
