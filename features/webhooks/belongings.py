"""Webhooks in erasures and exports of tenants, and their metrics."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from palaver.store.redis import keys
from palaver.store.redis.connection import Pipeline
from palaver.store.redis.keys import Key
from palaver.store.sides import ListedSide, Part, Placed
from palaver.telemetry.exposition import Samples

from . import webhook_keys
from .backlog import WebhookBacklogs
from .webhooks import Webhooks


class _Webhooks(ListedSide):
    section = 8
    kind = "webhooks"
    due = webhook_keys.WEBHOOKS_DUE
    place = re.compile(r"wh_[0-9a-z_]+")

    def listed(self, tag: str) -> Key:
        return webhook_keys.webhooks(tag)

    def erasure(self, tag: str) -> Key:
        return webhook_keys.webhooks_erasure(tag)

    def keys_of(self, tag: str, name: str) -> Sequence[Key]:
        of = webhook_keys.of_webhook(name)
        return of.hook, of.waiting, of.listed, of.ended, of.records

    def due_member(self, tag: str, name: str) -> str:
        return name

    def unlist(self, pipeline: Pipeline, tag: str, names: Sequence[str]) -> None:
        pipeline.hdel(webhook_keys.WEBHOOK_TENANTS, tag)
        super().unlist(pipeline, tag, names)

    def traces_in(self, shard: str, tag: str) -> Sequence[Key]:
        return (webhook_keys.outbox(shard, keys.owner(tag)),)

    def shared_in(self, shard: str) -> Sequence[Key]:
        return (webhook_keys.outboxes(shard),)

    def sweep(self, pipeline: Pipeline, shard: str, tag: str) -> None:
        # A worker that delivers may have written it again.
        pipeline.hdel(keys.caps(shard), keys.owner(tag) + webhook_keys.WEBHOOKS_MARK)

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
