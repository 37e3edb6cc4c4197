"""The cases of webhooks in tests of the core. A tenant has one from its beginning, which is to hear of its runs."""

from __future__ import annotations

from typing import Any, Final

import orjson

from features.webhooks import webhook_keys
from features.webhooks.contract import AttemptOutcome
from features.webhooks.deliveries import Deliveries
from features.webhooks.delivery_records import RecordedAttempt
from features.webhooks.webhooks import Webhooks
from palaver.store import Store
from palaver.store.redis.reach import EVERYTHING, within

NO_PART: Final = dict.fromkeys(
    [
        "POST /v1/webhooks",
        "PATCH /v1/webhooks/{webhook_id}",
        "DELETE /v1/webhooks/{webhook_id}",
        "POST /v1/webhooks/{webhook_id}/rotate",
        "POST /v1/webhooks/{webhook_id}/replay",
    ],
    "it is about no conversation",
)
ENDOWED: Final = 1


async def prepare(store: Store, tag: str, words: str) -> None:
    """A webhook that is there before the runs that it hears of."""
    await store.part(Webhooks).create(tag, "https://example.org/hook", description=words)


async def take_note(store: Store, tag: str) -> None:
    """Take the events so far out of the outbox, and let one of the deliveries end."""
    with within(EVERYTHING):
        await store.part(Deliveries).take_events("00")
        (webhook,) = await store.part(Webhooks).list(tag)
        lease = await store.part(Deliveries).claim(webhook.id)
        assert lease is not None
        await store.part(Deliveries).settle(lease, AttemptOutcome.DELIVERED, RecordedAttempt(1, 1, 204, None, ""))


async def check_key(redis: Any, name: str, ttl: int) -> None:
    """Each delivery has a record, and is pending or has ended; each webhook is due; nothing outlives
    one."""
    _, _, kind, *rest = name.split(":")
    assert (ttl > 0) == (kind == "erasure"), f"{name} has the TTL {ttl}"
    if kind in ("of", "due", "tenants", "counts", "erasure"):
        return
    assert kind in ("hook", "waiting", "listed", "ended", "records"), f"{name} is no key of a webhook"
    of = webhook_keys.of_webhook(rest[0])
    assert await redis.exists(of.hook), f"{name} outlives its webhook"
    if kind != "hook":
        return
    assert await redis.zscore(of.due, rest[0]) is not None, f"no worker looks at {name}"
    waiting, listed, ended = [{*await redis.zrange(key, 0, -1)} for key in (of.waiting, of.listed, of.ended)]
    records = await redis.hgetall(of.records)
    assert waiting | ended == listed == records.keys(), f"{name} has other deliveries than listed"
    assert not waiting & ended, f"{name} has deliveries that have ended and are pending"
    for delivery_id, text in records.items():
        state = orjson.loads(text)["state"]
        assert (state == "pending") == (delivery_id in waiting), f"{delivery_id} of {name} is {state}"
