"""The backlogs of webhooks, for operators and for metrics: all that they have yet to be sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final, cast, get_args

from palaver.late import dataclass
from palaver.store.reading.records import moment
from palaver.store.redis.connection import now_ms
from palaver.store.redis.told_keys import all_told
from palaver.store.redis.visits import ask_each, whole
from palaver.store.sides import Ground
from palaver.telemetry.exposition import Samples, Values
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.webhooks import AttemptResult, OffReason, WebhookCondition

from . import webhook_keys

_PAGE: Final = 200
"""Webhooks that are read at once."""


@dataclass(frozen=True, slots=True)
class WebhookBacklog:
    """A webhook, and what it is to be sent."""

    id: str
    pending: int
    """Deliveries that have not ended."""
    due_for: float
    """Seconds for which the next attempt has been due; 0: it is not yet."""
    off: OffReason | None
    """Why nothing is sent to it."""
    failing_since: datetime | None

    @property
    def state(self) -> WebhookCondition:
        """Its condition."""
        if self.off is not None:
            return "off"
        return "on" if self.failing_since is None else "failing"


class WebhookBacklogs:
    """The backlogs of all webhooks."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._shards = all_shards(ground.settings.shards)

    async def read(self, most: int) -> Sequence[WebhookBacklog]:
        """Return webhooks, those first whose attempt has been due for longest, ``most`` of them."""
        now, found = await now_ms(self._redis), list[WebhookBacklog]()
        while len(found) < most:
            size = min(_PAGE, most - len(found))
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.zrange(webhook_keys.WEBHOOKS_DUE, len(found), len(found) + size - 1, withscores=True)
            (places,) = await pipeline.execute()
            for webhook_id, _ in places:
                of = webhook_keys.of_webhook(webhook_id.decode())
                pipeline.zcard(of.waiting)
                pipeline.hmget(of.hook, ["off", "failing_since"])
            replies = iter(await pipeline.execute() if places else ())
            for webhook_id, at in places:
                pending, (off, since) = next(replies), next(replies)
                due_for = max(0.0, (now - at) / 1000) if pending and off is None else 0.0
                why = cast(OffReason | None, None if off is None else off.decode())
                found.append(WebhookBacklog(webhook_id.decode(), pending, due_for, why, moment(since)))
            if len(places) < size:
                break
        return found

    async def samples(self) -> Samples:
        """Return what metrics say of webhooks."""
        names = [*(webhook_keys.outboxes(shard) for shard in self._shards), *all_told()]
        # Where the server of the counts is away, there are no samples at all.
        counts, found = await asyncio.gather(
            self._redis.hgetall(webhook_keys.WEBHOOKS_COUNTS),
            ask_each(self._redis, names, lambda pipeline, name: pipeline.zrange(name, 0, 0, withscores=True)),
        )
        first = [reply for _, reply in whole(names, found)]
        now, known = await now_ms(self._redis), await self.read(limit_of("webhooks_measured"))
        untaken = [(now - since) / 1000 for (pairs,) in first for _, since in pairs]
        states = Counter(each.state for each in known)
        attempts: Values = {(each,): int(counts.get(each.encode(), 0)) for each in get_args(AttemptResult)}
        waits = max([0.0, *untaken, *(each.due_for for each in known)])
        return {
            "palaver_webhook_attempts_total": attempts,
            "palaver_webhook_deliveries_dropped_total": {(): int(counts.get(b"dropped", 0))},
            "palaver_webhook_pending": {(): sum(each.pending for each in known)},
            "palaver_webhook_oldest_seconds": {(): round(waits, 3)},
            "palaver_webhooks": {(state,): states[state] for state in get_args(WebhookCondition)},
        }
