"""Delivers: takes events out of the outboxes, and makes the attempts that are due, one at a time at each webhook.

Any number of workers may do so. A slow receiver holds up only itself: each webhook has a task of its own, and
there are more places for these than a worker with slow receivers fills at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

from palaver.config.settings import Settings
from palaver.errors import NotDurable, StaleLease, StateConflict
from palaver.processes.tasks import end
from palaver.secrets.sealing import KeyMissing, SealBroken
from palaver.store import Store
from palaver.vocabulary.ids import file_webhook_id

from .contract import AttemptOutcome
from .deliveries import Deliveries, DeliveryLease
from .delivery_records import RecordedAttempt
from .messages import body_of, headers_of
from .outcomes import judge
from .sending import Sender
from .tasks import TaskOrder, TaskSender
from .webhook_config import WebhookConfig
from .webhook_file import FileWebhook
from .webhooks import Webhooks

log = logging.getLogger("palaver.features.webhooks")

_PLACES: Final = 256
"""Webhooks that this process sends to at once."""
_LOOKED: Final = 1024
"""Webhooks that are due among which places are given away."""
_EVERY: Final = 0.25
"""Seconds between two looks, while there is nothing to do."""
_MARKS: Final = 5.0
"""Seconds between two looks at the marks of tenants."""
_TURN: Final = 30.0
"""Seconds for which a webhook keeps its place, while there is more to send to it."""
_SOON: Final = 1.0
"""Seconds after which others may try what this process cannot."""
_UNABLE: Final = 60.0
"""Seconds for which a webhook is left to others whose secrets this process cannot open."""


async def keep_file(store: Store, file: Mapping[str, FileWebhook]) -> None:
    """Keep the webhooks of the operator's file as they stand there, and forget those that do not any more. One that
    cannot be kept is left out: it is no reason to deliver nothing to all others."""
    kept = set()
    for name, webhook in file.items():
        tenant = await store.tenants.get(webhook.tenant) if webhook.tenant else None
        if webhook.tenant and tenant is None:
            log.error("PALAVER_WEBHOOKS: [webhooks.%s] is left out: there is no tenant %r", name, webhook.tenant)
            continue
        tag = tenant.tag if tenant else ""
        kept.add(file_webhook_id(name, tag))
        try:
            await store.part(Webhooks).keep_file(tag, name, webhook)
        except (StateConflict, NotDurable) as error:
            log.error("PALAVER_WEBHOOKS: [webhooks.%s] may be left out: %s", name, error)
    await store.part(Webhooks).forget_other_files(kept)


class Deliverer:
    """Delivers to the webhooks of all tenants."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        sender: Sender | None = None,
        *,
        file: Mapping[str, FileWebhook] | None = None,
    ) -> None:
        """``file`` has the webhooks of the operator's file, by name: others of a file are to go. None: there is no file
        here, and those of one are left to others."""
        self._store = store
        self._file = file
        # Where tools run, too, they are hidden from those later.
        self._environment = dict(os.environ) if file else {}
        self._sender = sender or Sender(settings.webhook_hosts)
        self._tasks = TaskSender()
        self._chance = random.Random()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._unable: dict[str, float] = {}
        """Until when each of them is left to others."""
        self._served: dict[str, float] = {}
        """The end of the last turn of each that is due: those that have waited for longer are first."""
        self._marked_at = float("-inf")

    async def run(self) -> None:
        """Deliver, for ever."""
        try:
            if self._file is not None:
                await keep_file(self._store, self._file)
            while True:
                if not await self.look():
                    await asyncio.sleep(_EVERY)
                    await self._store.part(Deliveries).until_wanted()
        finally:
            await end(*self._busy.values())
            await self._sender.close()

    async def look(self) -> bool:
        """Take events, and begin attempts that are due. Tell whether there was anything to do."""
        deliveries, now = self._store.part(Deliveries), time.monotonic()
        if now - self._marked_at >= _MARKS:
            self._marked_at = now
            await self._store.part(Webhooks).see_to_marks()
        taken = sum([await deliveries.take_events(shard) for shard in await deliveries.shards_with_events()])
        taken += await deliveries.take_told()
        self._unable = {webhook_id: until for webhook_id, until in self._unable.items() if until > now}
        # Those that are left out stand before others.
        due = await deliveries.due(_LOOKED + len(self._busy) + len(self._unable))
        self._served = {webhook_id: self._served.get(webhook_id, -math.inf) for webhook_id in due}
        begun = 0
        for webhook_id in sorted(due, key=self._served.__getitem__):
            if webhook_id in self._busy or webhook_id in self._unable or len(self._busy) >= _PLACES:
                continue
            task = asyncio.create_task(self._deliver_to(webhook_id), name=f"webhook {webhook_id}")
            self._busy[webhook_id] = task
            begun += 1
        return bool(taken or begun)

    async def _deliver_to(self, webhook_id: str) -> None:
        try:
            until = time.monotonic() + _TURN
            while True:
                lease = await self._store.part(Deliveries).claim(webhook_id)
                if lease is None or not await self._attempt(lease) or time.monotonic() >= until:
                    return
        except Exception as error:
            log.warning("deliveries to %s: %s; again soon", webhook_id, type(error).__name__)
        finally:
            del self._busy[webhook_id]
            self._served[webhook_id] = time.monotonic()

    def _keys(self, webhook: WebhookConfig, now: int) -> Sequence[bytes]:
        """What its events are signed with. Raises KeyMissing and SealBroken: this process cannot know it."""
        if webhook.file_name is None:
            return self._store.part(Webhooks).opened(webhook, now)
        kept = (self._file or {}).get(webhook.file_name)
        if kept is None:
            raise KeyMissing
        return kept.keys(webhook.file_name, self._environment)

    async def _attempt(self, lease: DeliveryLease) -> bool:
        """Make an attempt and record it. Tell whether there may be more to send to the webhook."""
        webhook, record = lease.webhook, lease.record
        now = await self._store.part(Deliveries).now()
        try:
            keys = self._keys(webhook, now)
        except (KeyMissing, SealBroken):
            log.warning("the secrets of %s cannot be opened here: it is left to others", webhook.id)
            self._unable[webhook.id] = time.monotonic() + _UNABLE
            await self._store.part(Deliveries).let_go(lease, _SOON)
            return False
        body = body_of(record, webhook.format)
        began = time.monotonic()
        if (of_file := (self._file or {}).get(webhook.file_name or "")) is not None and of_file.task is not None:
            broker = of_file.broker(webhook.file_name or "", self._environment)
            order = TaskOrder(of_file.task, of_file.queue, f"{webhook.file_name}.{record.id}", body)
            answer = await self._tasks.send(broker, order)
        else:
            headers = headers_of(record, body, now // 1000, keys)
            answer = await self._sender.send(webhook.url, headers, body, trusted=webhook.file_name is not None)
        took = round((time.monotonic() - began) * 1000)
        judged = judge(answer, record.tries, self._chance)
        attempt = RecordedAttempt(now, took, answer.status, answer.error, answer.text)
        try:
            off = await self._store.part(Deliveries).settle(
                lease, judged.outcome, attempt, again_in=judged.again_in, rests=judged.rests
            )
        except StaleLease:
            return False
        if off is not None:
            log.warning("nothing more is sent to %s: it is %s", webhook.id, off)
            await self._store.part(Deliveries).tell_that_off(webhook, lease.fence, off)
        return judged.outcome is AttemptOutcome.DELIVERED
