"""Deliveries of events to webhooks: made from the outbox, leased for an attempt, settled, listed and made again.

An event is taken out of its outbox once it is pending at each webhook that hears of it, under an id that follows from
the event. So a process that is killed in between leaves work that is done again, and nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from palaver.errors import UNREADABLE, Refused, StaleLease
from palaver.late import dataclass
from palaver.schemas.webhooks import DeliveryPage, ReplayResult, WebhookDelivery
from palaver.store.reading.records import instant
from palaver.store.redis.connection import now_ms, portions
from palaver.store.redis.keys import Key
from palaver.store.redis.told_keys import all_told, told_to
from palaver.store.redis.visits import ask_each
from palaver.store.scripting.contracts.replies import Stale
from palaver.store.sides import Ground
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.webhooks import DeliveryState

from . import webhook_keys
from .contract import (
    AttemptOutcome,
    ClaimDelivery,
    DeliveryClaimed,
    ForgetEvents,
    QueuedDelivery,
    QueueDeliveries,
    SettleAttempt,
)
from .delivery_records import (
    AskedFor,
    DeliveryRecord,
    RecordedAttempt,
    of_run,
    of_told,
    record_of,
    shown_delivery,
    without_answers,
)
from .terms import LEASE, OPENAI_TYPES
from .webhook_config import WebhookConfig
from .webhooks import Webhooks

log = logging.getLogger("palaver.features.webhooks")

_EVENTS: Final = 100
"""Events that are taken out of an outbox at once."""
_LOOKS: Final = 4
"""Looks in a second for outboxes that have events."""
_OUTBOXES: Final = 50
"""Outboxes of a shard that are looked at in one go."""
_ATTEMPTS: Final = 20
"""The last attempts of a delivery, which are kept."""
_UNWANTED: Final = 2.0
"""Seconds between two looks whether there is any webhook."""
_BROKEN: Final = 600.0
"""Seconds for which a webhook is left alone that cannot be read."""
_PAGE: Final = 200
"""Deliveries that are read at once."""


@dataclass(frozen=True, slots=True)
class DeliveryLease:
    """The right to make an attempt at a webhook."""

    webhook: WebhookConfig
    fence: int
    record: DeliveryRecord


class Deliveries:
    """The deliveries of all webhooks."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._scripts = ground.scripts
        self._rounds = ground.rounds
        self._webhooks = Webhooks(ground)

    async def now(self) -> int:
        """Redis's clock, in milliseconds."""
        return await now_ms(self._redis)

    async def are_wanted(self) -> bool:
        """Tell whether there is any webhook."""
        return bool(await self._redis.exists(webhook_keys.WEBHOOKS_DUE))

    async def shards_with_events(self) -> list[str]:
        """Return the shards that have events in their outboxes; of many shards, among those whose turn it is."""
        shards = self._rounds.turn("outboxes", _LOOKS)
        numbers = await ask_each(
            self._redis, shards, lambda pipeline, shard: pipeline.zcard(webhook_keys.outboxes(shard))
        )
        return [shard for shard, (number,) in numbers if number]

    async def take_events(self, shard: str) -> int:
        """Make deliveries of events of a shard; return of how many."""
        names = await self._redis.zrange(webhook_keys.outboxes(shard), 0, _OUTBOXES - 1)
        return sum([await self._take_from(shard, name.decode()) for name in names])

    async def _take_from(self, shard: str, name: str) -> int:
        owner = name.removesuffix("outbox")
        tenant, outbox = owner.strip("@:"), webhook_keys.outbox(shard, owner)
        taken, heard = await self._take(tenant, webhook_keys.outboxes(shard), name, outbox, of_run)
        if not heard:
            await self._webhooks.unmark(shard, tenant)
        return taken

    async def take_told(self) -> int:
        """Make deliveries of events that features tell of; return of how many."""
        lists = await ask_each(self._redis, all_told(), lambda pipeline, told: pipeline.zrange(told, 0, _OUTBOXES - 1))
        tenants = [(told, tag.decode()) for told, (tags,) in lists for tag in tags]
        return sum(
            [(await self._take(tag, told, tag, told_to(told, tag), of_told(told, tag)))[0] for told, tag in tenants]
        )

    async def _take(self, tenant: str, listed: Key, name: str, outbox: Key, asked_for: AskedFor) -> tuple[int, bool]:
        """Make deliveries of events of an outbox, which is listed by a name; return of how many, and whether the tenant
        has a webhook."""
        entries = await self._redis.xrange(outbox, "-", "+", count=_EVENTS)
        # Behind the events: one that was made before an event is among these.
        webhooks = await self._webhooks.configs(tenant)
        records = [record for entry in entries if (record := record_of(entry, asked_for)) is not None]
        for webhook in webhooks:
            if heard := [record for record in records if _is_for(webhook, record)]:
                await self.queue(webhook.id, heard)
        taken = tuple(entry_id.decode() for entry_id, _ in entries)
        await self._scripts.run(ForgetEvents(outbox=outbox, outboxes=listed, outbox_name=name, entries=taken))
        return len(entries), bool(webhooks)

    async def queue(self, webhook_id: str, records: Sequence[DeliveryRecord], *, again: bool = False) -> int:
        """Make deliveries pending; return how many were not. Those that the webhook has and that have ended are made
        ``again``, or only others."""
        reply = await self._scripts.run(
            QueueDeliveries(
                keys=webhook_keys.of_webhook(webhook_id),
                again=again,
                deliveries=tuple(QueuedDelivery(record.id, record.json) for record in records),
            )
        )
        return reply.number

    async def tell_that_off(self, webhook: WebhookConfig, fence: int, reason: str) -> None:
        """Tell the tenant's other webhooks that nothing is sent to this one any more."""
        now = await self.now()
        data = {"webhook_id": webhook.id, "url": webhook.url, "reason": reason, "sequence": fence}
        record = DeliveryRecord(
            f"msg_{webhook.id.removeprefix('wh_')}_{fence}", "webhook.disabled", now, "pending", 0, data, ()
        )
        for other in await self._webhooks.configs(webhook.tenant):
            if other.id != webhook.id and _is_for(other, record):
                await self.queue(other.id, [record])

    async def until_wanted(self) -> None:
        """Wait until there is a webhook."""
        while True:
            if await self.are_wanted():
                return
            await asyncio.sleep(_UNWANTED)

    async def due(self, limit: int) -> list[str]:
        """Return webhooks about which something is to be done now."""
        now = await now_ms(self._redis)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zrange(webhook_keys.WEBHOOKS_DUE, "-inf", now, byscore=True, offset=0, num=limit)
        (ids,) = await pipeline.execute()
        return [webhook_id.decode() for webhook_id in ids]

    async def claim(self, webhook_id: str) -> DeliveryLease | None:
        """Lease a webhook for an attempt of its next delivery; None if there is none now, or another worker has it."""
        claim = ClaimDelivery(keys=webhook_keys.of_webhook(webhook_id), webhook_id=webhook_id, lease=LEASE)
        match await self._scripts.run(claim):
            case DeliveryClaimed() as claimed:
                return await self._lease(webhook_id, claimed)
            case _:
                return None

    async def _lease(self, webhook_id: str, claimed: DeliveryClaimed) -> DeliveryLease | None:
        """The lease of a delivery. One that cannot be read holds up no other: it is forgotten; a webhook that cannot be
        is left alone for a while."""
        try:
            config = WebhookConfig.of_json(claimed.config)
        except UNREADABLE:
            log.error("the webhook %s cannot be read", webhook_id)
            await self._let_go(webhook_id, claimed.fence, claimed.delivery_id, rests=_BROKEN)
            return None
        try:
            return DeliveryLease(config, claimed.fence, DeliveryRecord.of_json(claimed.record))
        except UNREADABLE:
            log.error("the delivery %s of %s cannot be read: it is not made", claimed.delivery_id, webhook_id)
            await self._let_go(webhook_id, claimed.fence, claimed.delivery_id, AttemptOutcome.UNREADABLE)
            return None

    async def settle(
        self,
        lease: DeliveryLease,
        outcome: AttemptOutcome,
        attempt: RecordedAttempt,
        *,
        again_in: float = 0.0,
        rests: float = 0.0,
    ) -> str | None:
        """Record an attempt. Return why the webhook is off from now on; None if it is not.

        Raises:
            StaleLease: another worker goes on with it.
        """
        state: DeliveryState = "failed"
        if outcome is AttemptOutcome.DELIVERED:
            state = "delivered"
        elif outcome is AttemptOutcome.AGAIN:
            state = "pending"
        before = lease.record
        attempts = (*without_answers(before.attempts[1 - _ATTEMPTS :]), attempt)
        record = replace(before, state=state, tries=before.tries + 1, attempts=attempts)
        reply = await self._scripts.run(
            SettleAttempt(
                keys=webhook_keys.of_webhook(lease.webhook.id),
                fence=lease.fence,
                delivery_id=before.id,
                outcome=outcome,
                record=record.json,
                again_in=again_in,
                rests=rests,
            )
        )
        if isinstance(reply, Stale):
            raise StaleLease
        return reply.off

    async def let_go(self, lease: DeliveryLease, rests: float) -> None:
        """Leave the attempt to others, after so many seconds."""
        await self._let_go(lease.webhook.id, lease.fence, lease.record.id, rests=rests)

    async def _let_go(
        self,
        webhook_id: str,
        fence: int,
        delivery_id: str,
        outcome: AttemptOutcome = AttemptOutcome.UNTRIED,
        rests: float = 0.0,
    ) -> None:
        """End a lease without an attempt."""
        await self._scripts.run(
            SettleAttempt(
                keys=webhook_keys.of_webhook(webhook_id),
                fence=fence,
                delivery_id=delivery_id,
                outcome=outcome,
                record="",
                again_in=0.0,
                rests=rests,
            )
        )

    async def page(
        self, webhook_id: str, *, state: DeliveryState | None, limit: int, cursor: str | None
    ) -> DeliveryPage:
        """Return deliveries of a webhook, the newest first.

        Raises:
            Refused: ``webhook_not_found``; ``invalid_cursor``.
        """
        await self._webhooks.get(webhook_id)
        try:
            place = int(cursor) if cursor else 0
        except ValueError:
            place = -1
        if place < 0 or place > limit_of("webhook_waiting") + limit_of("webhook_kept"):
            raise Refused("invalid_cursor", "The cursor is none that a list of deliveries gave.")
        found: list[WebhookDelivery] = []
        async for number, _, delivery in self._listed(webhook_id, place):
            if len(found) == limit:
                return DeliveryPage(data=found, next_cursor=str(number), has_more=True)
            if state is None or delivery.state == state:
                found.append(delivery)
        return DeliveryPage(data=found, next_cursor=None, has_more=False)

    async def _listed(self, webhook_id: str, place: int) -> AsyncIterator[tuple[int, int, WebhookDelivery]]:
        """Yield the deliveries from that place on, each with its own, and with the time since which it is there (ms):
        its event may be older."""
        of = webhook_keys.of_webhook(webhook_id)
        while True:
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.zrange(of.listed, place, place + _PAGE - 1, desc=True, withscores=True)
            (listed,) = await pipeline.execute()
            if not listed:
                return
            pipeline.hmget(of.records, [delivery_id.decode() for delivery_id, _ in listed])
            for delivery_id, _ in listed:
                pipeline.execute_command("ZSCORE", of.waiting, delivery_id)
            texts, *times = await pipeline.execute()
            for number, ((_, there), text, at) in enumerate(zip(listed, texts, times, strict=True), place):
                if text is not None:
                    yield number, int(there), shown_delivery(DeliveryRecord.of_json(text), at)
            place += len(listed)

    async def replay(self, webhook_id: str, ids: Sequence[str]) -> ReplayResult:
        """Make deliveries again that have ended. Raises Refused (``webhook_not_found``)."""
        await self._webhooks.get(webhook_id)
        return ReplayResult(replayed=await self._again(webhook_id, ids), more=False)

    async def replay_range(
        self, webhook_id: str, since: datetime, until: datetime | None, state: DeliveryState | None
    ) -> ReplayResult:
        """Make the deliveries again that have come within a time, of a state, or of any; as many as one request may.

        Raises:
            Refused: ``webhook_not_found``.
        """
        await self._webhooks.get(webhook_id)
        wanted: list[str] = []
        more = False
        async for _, there, delivery in self._listed(webhook_id, 0):
            # Not by the event: where no worker delivered for a while, older ones may have come behind newer ones.
            if instant(there) < since:
                break
            inside = since <= delivery.created_at and (until is None or delivery.created_at <= until)
            if inside and delivery.state != "pending" and state in (None, delivery.state):
                if len(wanted) == limit_of("webhook_replay"):
                    count_exceeded("webhook_replay")
                    more = True
                    break
                wanted.append(delivery.id)
        return ReplayResult(replayed=await self._again(webhook_id, wanted), more=more)

    async def _again(self, webhook_id: str, ids: Sequence[str]) -> int:
        replayed = 0
        for some in portions(ids, _PAGE):
            texts = await self._redis.hmget(webhook_keys.of_webhook(webhook_id).records, some)
            found = [DeliveryRecord.of_json(text) for text in texts if text is not None]
            if records := [replace(each, state="pending", tries=0) for each in found]:
                replayed += await self.queue(webhook_id, records, again=True)
        return replayed


def _is_for(webhook: WebhookConfig, record: DeliveryRecord) -> bool:
    if webhook.format == "openai" and record.type not in OPENAI_TYPES:
        return False
    return webhook.hears(record.type, record.at)
