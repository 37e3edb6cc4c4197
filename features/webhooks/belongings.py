"""Webhooks in erasures and exports of tenants, and their metrics."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Pipeline
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts import EraseKeys
from palaver.store.scripting.contracts.erasure import Erasable
from palaver.store.scripting.scripts import Scripts
from palaver.store.sides import Part, Placed, StoreSide
from palaver.telemetry.exposition import Samples

from . import webhook_keys
from .backlog import WebhookBacklogs
from .webhooks import Webhooks

_PLACE: Final = re.compile(r"wh_[0-9a-z_]+")


class _Webhooks(StoreSide):
    section = 8

    def marks(self, tag: str) -> Sequence[Key]:
        return (webhook_keys.webhooks_erasure(tag),)

    def traces(self, tag: str) -> Sequence[Key]:
        return (webhook_keys.webhooks(tag),)

    def traces_in(self, shard: str, tag: str) -> Sequence[Key]:
        return (webhook_keys.outbox(shard, keys.owner(tag)),)

    def shared_in(self, shard: str) -> Sequence[Key]:
        return (webhook_keys.outboxes(shard),)

    async def erase_some(self, redis: Connection, scripts: Scripts, tag: str) -> bool:
        ids = [member.decode() for member in await redis.zrange(webhook_keys.webhooks(tag), 0, -1)]
        if ids:
            of = [webhook_keys.of_webhook(webhook_id) for webhook_id in ids]
            more = (key for each in of for key in (each.waiting, each.listed, each.ended, each.records))
            erased = (*(Erasable(each.hook, "webhooks", 1) for each in of), *(Erasable(key, "", 0) for key in more))
            await scripts.run(EraseKeys(erasure=webhook_keys.webhooks_erasure(tag), erased_keys=erased))
            pipeline = redis.pipeline(transaction=False)
            pipeline.zrem(webhook_keys.WEBHOOKS_DUE, *ids)
            pipeline.hdel(webhook_keys.WEBHOOK_TENANTS, tag)
            # Last: it says what is left to do.
            pipeline.delete(webhook_keys.webhooks(tag))
            await pipeline.execute()
        return bool(ids)

    def sweep(self, pipeline: Pipeline, shard: str, tag: str) -> None:
        # A worker that delivers may have written it again.
        pipeline.hdel(keys.caps(shard), keys.owner(tag) + webhook_keys.WEBHOOKS_MARK)

    def check_place(self, place: str) -> None:
        if not _PLACE.fullmatch(place):
            raise ValueError(place)

    async def export(self, part: Part[Any], tag: str, place: str) -> AsyncGenerator[Placed, None]:
        """Yield webhooks without their secrets. What was sent to them is the runs'."""
        webhooks: Webhooks = part(Webhooks)
        known = await webhooks.list(tag)
        ids = [webhook.id for webhook in known]
        for webhook in known[ids.index(place) + 1 if place in ids else 0 :]:
            yield webhook.id, {"kind": "webhook", "webhook": webhook.model_dump(mode="json")}

    async def samples(self, part: Part[Any]) -> Samples:
        backlogs: WebhookBacklogs = part(WebhookBacklogs)
        return await backlogs.samples()


STORE_SIDE: Final = _Webhooks()
